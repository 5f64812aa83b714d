package partition

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind: Close, and every way in which OpenSet fails, stops all that was started.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
