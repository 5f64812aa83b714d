package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocs holds the versions in docs/kafka.md against the table.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../docs/kafka.md")
	require.NoError(t, err)
	doc := string(b)
	for _, a := range apis {
		require.Contains(t, doc, fmt.Sprintf("| %d | %s | %d-%d | %d-%d |", a.key, a.name, a.min, a.max, a.advertised, a.max))
	}
	require.Equal(t, len(apis), strings.Count(doc[:strings.Index(doc, "A version or an API")], "\n| ")-1)
}
