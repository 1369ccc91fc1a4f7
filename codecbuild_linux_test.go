package ledger

import "testing"

// What Open takes for granted of the JSON package that go.mod requires.
func TestTheJSONPackageKeepsUnknownMembers(t *testing.T) {
	if err := tryCodec(); err != nil {
		t.Error(err)
	}
}
