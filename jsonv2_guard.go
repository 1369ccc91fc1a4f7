//go:build goexperiment.jsonv2 && !go1.27

package ledger

// Built with GOEXPERIMENT=jsonv2, Go 1.26 replaces go-json-experiment/json by its own
// encoding/json/v2, which silently drops the members of a row that this version does not
// know. Losing other programs' data is not an option, so such a build must not exist.
var _ = build_ledger_without_GOEXPERIMENT_jsonv2_or_with_Go_1_27
