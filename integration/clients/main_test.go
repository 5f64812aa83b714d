package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClients runs the suite; "go run ./integration/clients" does the same with the lines shown.
func TestClients(t *testing.T) {
	failed, err := run(t.Context(), os.Stdout, nil)
	require.NoError(t, err)
	require.Zero(t, failed, "cases failed, see the lines that begin with FAIL")
}
