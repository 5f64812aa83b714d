package broker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
)

// TestDocs holds the versions and settings in docs/kafka.md against the tables they come from.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../docs/kafka.md")
	require.NoError(t, err)
	doc := string(b)
	for _, a := range apis {
		require.Contains(t, doc, fmt.Sprintf("| %d | %s | %d-%d | %d-%d |", a.key, a.name, a.min, a.max, a.advertised, a.max))
	}
	for _, d := range slices.Concat(cluster.TopicConfigDefs, cluster.GroupConfigDefs, cluster.MovesConfigDefs) {
		value := "`" + d.Default + "`"
		if d.Default == "" {
			value = "(empty)"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", d.Name, strings.ToLower(d.Type.String()), value, d.Doc)
		require.Equal(t, !d.Hidden, strings.Contains(doc, row), row)
	}
	require.Equal(t, len(apis), strings.Count(doc[:strings.Index(doc, "A version or an API")], "\n| ")-1)
}
