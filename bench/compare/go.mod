module github.com/tierbroker/tierbroker/bench/compare

go 1.26.8

replace github.com/tierbroker/tierbroker => ../..
