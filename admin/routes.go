package admin

import (
	"errors"
	"net/http"
	"net/http/pprof"
)

type api struct {
	Options
	peers *http.Client // asks other nodes
}

// New returns the handler for all routes.
func New(o Options) (http.Handler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	a := &api{Options: o, peers: newPeers()}
	o.Metrics.bind(a)
	mux := http.NewServeMux()
	for _, route := range []struct {
		pattern string
		handler http.HandlerFunc
		local   bool // only where partitions live
	}{
		{"GET /healthz", a.healthz, false},
		{"GET /readyz", a.readyz, false},
		{"GET /api/v1/cluster", a.cluster, false},
		{"GET /api/v1/brokers", a.brokers, false},
		{"GET /api/v1/cluster/status", a.status, false},
		{"GET /api/v1/brokers/{broker}", a.broker, false},
		{"POST /api/v1/brokers/{broker}/drain", a.drainBroker, false},
		{"POST /api/v1/brokers/{broker}/undrain", a.undrainBroker, false},
		{"POST /api/v1/brokers/{broker}/remove", a.removeBroker, false},
		{"GET /api/v1/assignments", a.assignments, false},
		{"GET /api/v1/assignments/{topic}/{partition}/loss", a.loss, false},
		{"GET /api/v1/moves", a.moves, false},
		{"POST /api/v1/moves", a.setMoves, false},
		{"POST /api/v1/moves/cancel", a.cancelMoves, false},
		{"GET /api/v1/rebalance", a.rebalanceStatus, false},
		{"GET /api/v1/rebalance/plan", a.rebalancePlan, false},
		{"POST /api/v1/rebalance/apply", a.rebalanceApply, false},
		{"POST /api/v1/rebalance/stop", a.rebalanceStop, false},
		{"POST /api/v1/rebalance/auto", a.rebalanceAuto, false},
		{"GET /api/v1/topics", a.topics, false},
		{"GET /api/v1/topics/{topic}", a.topic, false},
		{"GET /api/v1/config", a.config, false},
		{"GET /api/v1/partitions", a.partitions, true},
		{"GET /api/v1/segments", a.segments, true},
		{"POST /api/v1/topics/{topic}/roll", a.roll, false},
		{"POST /api/v1/topics/{topic}/evict", a.evict, false},
	} {
		handler := route.handler
		if route.local && o.Partitions == nil {
			handler = func(w http.ResponseWriter, _ *http.Request) {
				writeError(w, http.StatusNotFound, errors.New("this process has no partitions: its roles lack \"broker\""))
			}
		}
		mux.HandleFunc(route.pattern, handler)
	}
	mux.Handle("GET /metrics", o.Metrics.handler(o.OnFault))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, errors.New("no such route: "+r.Method+" "+r.URL.Path))
	})
	mux.HandleFunc("/", console)
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return guard(mux, o.Loopback), nil
}
