package admin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func (w *world) GroupLag() GroupLag {
	return GroupLag{Pairs: []PairLag{{Group: "ä", Topic: "logs", Records: 12, Cold: 5, Lost: 1}}, At: testNow - 1500,
		Unlisted: 2, UnlistedRecords: 9, Unknown: 3}
}

func TestGroupLagMetrics(t *testing.T) {
	_, h, _ := setup(t, nil)
	text := get(t, h, "/metrics", 200)
	for _, line := range []string{
		`tierbroker_group_lag_records{group="ä",topic="logs"} 12`,
		`tierbroker_group_lag_cold_records{group="ä",topic="logs"} 5`,
		`tierbroker_group_lost_records{group="ä",topic="logs"} 1`,
		`tierbroker_group_lag_unlisted 2`,
		`tierbroker_group_lag_unlisted_records 9`,
		`tierbroker_group_lag_unknown_partitions 3`,
		`tierbroker_group_lag_age_seconds 1.5`,
	} {
		require.Contains(t, string(text), "\n"+line+"\n")
	}
}
