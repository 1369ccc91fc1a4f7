package transcript

import (
	"net/url"
	"testing"
)

// The standard library's reader of URLs is the judge.
func TestFileURL(t *testing.T) {
	for _, uri := range []string{
		"", "/w", "file:", "file:w", "file:/w", "file:/w%20x", "file:///w\n", "file:///w\x7f", "file:////w", "file://", "file:///", "file:///w", "FILE:///w/x", "file://host/w", "file://host",
		"file:///w%20x", "file:///%C3%A9/%2F", "file:///w%", "file:///w%2", "file:///w%zz", "file:///w%+1x",
		"file:///w?q=%", "file:///w?q", "file:///w#f", "file:///w%23x%3Fy", "file:///a%%", "https://x/w", "filex:///w", "file:///w//x/",
	} {
		path, ok := fileURL(uri)
		u, err := url.Parse(uri)
		want := err == nil && u.Scheme == "file" && u.Path != "" && u.Opaque == ""
		if ok != want || ok && path != u.Path {
			t.Errorf("%q: %q, %v; net/url: %v, %v", uri, path, ok, u, err)
		}
	}
}
