package admin

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuild(t *testing.T) {
	require.Regexp(t, `^prog v1\.2 \((commit [0-9a-f]{12}( with changes)?, )?go\S+.*, `+runtime.GOOS+`/`+runtime.GOARCH+`\)$`, Build("prog", "v1.2"))
}
