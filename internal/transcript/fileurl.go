package transcript

import (
	"strconv"
	"strings"
)

// fileURL returns the path that a file URL names (RFC 8089), whatever its host. It is not left to
// net/url: that package and what it imports are a tenth of a hook's start, and a hook reads no
// transcript.
func fileURL(uri string) (path string, ok bool) {
	const scheme = "file:"
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", false
	}
	rest, _, _ := strings.Cut(uri[len(scheme):], "#")
	rest, _, _ = strings.Cut(rest, "?")
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		rest = host[max(strings.IndexByte(host, '/'), 0):]
	}
	if !strings.HasPrefix(rest, "/") || strings.ContainsFunc(uri, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	var b strings.Builder
	for {
		plain, escaped, found := strings.Cut(rest, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), true
		}
		if len(escaped) < 2 {
			return "", false
		}
		c, err := strconv.ParseUint(escaped[:2], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		rest = escaped[2:]
	}
}
