package journal

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFormatPage decodes the example of the page that describes the format.
func TestFormatPage(t *testing.T) {
	page, err := os.ReadFile("../docs/format/journal.md")
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(page), "```hex\n")
	require.True(t, ok)
	example, _, ok = strings.Cut(example, "```")
	require.True(t, ok)
	var raw []byte
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(line, "  ")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		require.NoError(t, err, line)
		raw = append(raw, b...)
	}
	m, ok := parseMarker(raw[:markerKeyLen], raw[markerKeyLen:])
	require.True(t, ok)
	require.Equal(t, marker{kind: markEnd, snapshot: 1700000000000, batch: 2, records: 3}, m)
	require.Equal(t, Record{Key: raw[:markerKeyLen], Value: raw[markerKeyLen:]}, m.record())
}

func FuzzParseMarker(f *testing.F) {
	m := marker{kind: markPart, snapshot: 1, batch: 2, records: 3}.record()
	f.Add(m.Key, m.Value)
	f.Add([]byte{0, 1}, []byte(nil))
	f.Fuzz(func(t *testing.T, k, v []byte) {
		if m, ok := parseMarker(k, v); ok {
			require.Equal(t, Record{Key: k, Value: v}, m.record())
		}
	})
}
