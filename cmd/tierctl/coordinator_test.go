package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A coordinator that loads is asked again, wherever in the answer of several brokers it says so; any other error ends the command at once,
// and so does its user.
func TestCoordinated(t *testing.T) {
	loading := []error{
		kerr.CoordinatorLoadInProgress,
		fmt.Errorf("describe group g: %w", kerr.NotCoordinator),
		&kadm.ShardErrors{Name: "ListGroups", Errs: []kadm.ShardError{{Err: kerr.CoordinatorNotAvailable}}},
	}
	asked := 0
	got, err := coordinated(t.Context(), func(context.Context) (int, error) {
		asked++
		if asked <= len(loading) {
			return 0, loading[asked-1]
		}
		return 7, nil
	})
	require.NoError(t, err)
	require.Equal(t, 7, got)
	require.Equal(t, len(loading)+1, asked)

	refused := errors.New("refused")
	asked = 0
	_, err = coordinated(t.Context(), func(context.Context) (int, error) { asked++; return 0, refused })
	require.ErrorIs(t, err, refused)
	require.Equal(t, 1, asked)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = coordinated(ctx, func(context.Context) (int, error) { cancel(); return 0, kerr.CoordinatorLoadInProgress })
	require.ErrorIs(t, err, kerr.CoordinatorLoadInProgress)
}
