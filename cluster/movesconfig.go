package cluster

import (
	"strconv"
	"strings"
)

// Names of the settings of moves between brokers, for code.
const (
	MovesMax           = "tierbroker.moves.max"
	MovesMaxPerBroker  = "tierbroker.moves.max.per.broker"
	MovesTimeout       = "tierbroker.moves.timeout.ms"
	RebalanceAuto      = "tierbroker.rebalance.auto"
	RebalanceDelay     = "tierbroker.rebalance.delay.ms"
	RebalanceThreshold = "tierbroker.rebalance.threshold"
)

// MovesConfigDefs are the settings by which the controller moves partitions, in the order of their names. They hold for
// the whole cluster: set them as the default of all brokers; what one broker is set to is ignored.
var MovesConfigDefs = []ConfigDef{
	{Name: MovesMax, Type: TypeInt, Default: "40", check: between(1, 10_000), Doc: "Most planned moves of partitions under way at a time in the cluster."},
	{Name: MovesMaxPerBroker, Type: TypeInt, Default: "20", check: between(1, 10_000), Doc: "Most planned moves under way at a time from one broker, and to one broker."},
	{Name: MovesTimeout, Type: TypeLong, Default: "60000", check: between(1000, 3_600_000), Doc: "Milliseconds after which a move that is not done is taken back."},
	{Name: RebalanceAuto, Type: TypeBoolean, Default: "true", Doc: "Whether the controller evens out the brokers' partitions by itself. Bytes are evened out by tierctl rebalance only."},
	{Name: RebalanceDelay, Type: TypeLong, Default: "60000", check: between(0, 86_400_000), Doc: "Milliseconds that every broker must have been up before the controller evens out by itself."},
	{Name: RebalanceThreshold, Type: TypeInt, Default: "20", check: between(1, 1000), Doc: "Percent that a broker must be off its share of partitions before the controller evens out by itself."},
}

// MoveSettings are the settings of moves with a type.
type MoveSettings struct {
	Max, MaxPerBroker int
	Timeout           int64 // ms
	Auto              bool
	Delay             int64 // ms
	Threshold         int   // percent
}

// MoveSettings returns the settings of moves that hold for the cluster: the dynamic ones, else this process's, else the
// defaults. Values that do not parse count as not set.
func (i *Image) MoveSettings() MoveSettings {
	get := func(name string) string {
		d := brokerDefs[name]
		for _, layer := range []map[string]string{i.configs[DefaultConfig], i.layers.static} {
			if v, ok := layer[name]; ok && d.Validate(v) == nil {
				return strings.TrimSpace(v)
			}
		}
		return d.Default
	}
	num := func(name string) int64 {
		n, err := strconv.ParseInt(get(name), 10, 64)
		if err != nil {
			return 0 // unreachable: validated or a default
		}
		return n
	}
	return MoveSettings{
		Max: int(num(MovesMax)), MaxPerBroker: int(num(MovesMaxPerBroker)), Timeout: num(MovesTimeout),
		Auto: strings.EqualFold(get(RebalanceAuto), "true"), Delay: num(RebalanceDelay), Threshold: int(num(RebalanceThreshold)),
	}
}
