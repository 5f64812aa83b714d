package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func fine() ([]event, map[int32]int64) {
	return []event{
		{who: "a", Time: 1, What: "assigned", Partitions: []int32{0, 1}},
		{who: "a", Time: 2, What: "records", Records: map[int32][3]int64{0: {0, 4, 5}}},
		{Time: 3, What: "committed", committed: map[int32]int64{0: 5}},
		{who: "a", Time: 4, What: "revoked", Partitions: []int32{0}},
		{who: "b", Time: 4, What: "assigned", Partitions: []int32{0}},
		{who: "b", Time: 5, What: "records", Records: map[int32][3]int64{0: {3, 9, 7}}},
		{who: "a", Time: 6, What: "gone"},
		{who: "b", Time: 7, What: "assigned", Partitions: []int32{1}},
		{who: "b", Time: 8, What: "records", Records: map[int32][3]int64{1: {0, 0, 1}}},
		{Time: 9, What: "committed", committed: map[int32]int64{0: 10, 1: 1}},
	}, map[int32]int64{0: 10, 1: 1}
}

// The judge finds what it is there to find.
func TestJudge(t *testing.T) {
	events, ends := fine()
	v := judge(events, ends)
	require.Equal(t, verdict{records: 11, repeated: 2, handovers: 4}, v)

	for name, tc := range map[string]struct {
		spoil                    func([]event, map[int32]int64)
		shared, skipped, strayed int
	}{
		"two owners":            {func(e []event, _ map[int32]int64) { e[4].Time, e[3].Time = 3, 5 }, 1, 0, 0},
		"an owner still alive":  {func(e []event, _ map[int32]int64) { e[6].Time = 8 }, 1, 0, 0},
		"a hole":                {func(e []event, _ map[int32]int64) { e[5].Records[0] = [3]int64{6, 9, 4} }, 0, 2, 0},
		"a gap in a batch":      {func(e []event, _ map[int32]int64) { e[5].Records[0] = [3]int64{3, 9, 6} }, 0, 3, 0},
		"the end is missing":    {func(_ []event, ends map[int32]int64) { ends[1] = 2 }, 0, 2, 0},
		"a commit goes back":    {func(e []event, _ map[int32]int64) { e[9].committed[0] = 4 }, 0, 2, 0},
		"a commit runs ahead":   {func(e []event, _ map[int32]int64) { e[2].committed[0] = 6 }, 0, 1, 0},
		"processed by a former": {func(e []event, _ map[int32]int64) { e[1].Time = 7 }, 0, 1, 1},
		"a broken line":         {func(e []event, _ map[int32]int64) { e[6] = event{who: "a", Time: 6, What: "broken"} }, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			events, ends := fine()
			tc.spoil(events, ends)
			v := judge(events, ends)
			require.Equal(t, []int{tc.shared, tc.skipped, tc.strayed}, []int{len(v.shared), len(v.skipped), len(v.strayed)}, "%+v", v)
		})
	}
}
