package scenario

import "testing"

func TestFiguresOfTheClusterTests(t *testing.T) {
	got := clusterFigures(`=== RUN   TestMovesUnderLoad
    checker_moves_test.go:109: sync with 64 MB: 200 moves in 31s, 1000 records; longest gap between acknowledgements at a move: n 200, min 80 ms, median 112 ms, p90 140 ms, max 900 ms; in half a second without: nothing measured
    checker_failover_test.go:55: 100 partitions, lease 3s: first acknowledgement 3.6s after kill -9, half of them 3.9s, all 1m4.2s
    checker_failover_test.go:55: 100 partitions, lease 3s: first acknowledgement
`)
	if len(got) != 2 {
		t.Fatalf("%d results: %+v", len(got), got)
	}
	if v := got[0].Values; v["median ms"] != 112 || v["most ms"] != 900 || v["least ms"] != 80 {
		t.Errorf("moves: %v", v)
	}
	if v := got[1].Values; v["first ack s"] != 3.6 || v["all acked s"] != 64.2 {
		t.Errorf("failover: %v", v)
	}
	if clusterFigures("") != nil {
		t.Error("figures of nothing")
	}
}
