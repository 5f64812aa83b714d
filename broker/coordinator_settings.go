package broker

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/group"
)

// textSetting returns a broker setting, its default where it isn't set or not valid.
func textSetting(m map[string]string, name string) string {
	d := cluster.BrokerConfigDef(name)
	if v, ok := m[name]; ok && (d == nil || d.Validate(v) == nil) {
		return strings.TrimSpace(v)
	}
	if d == nil {
		return ""
	}
	return d.Default
}

// setting is textSetting for numbers.
func setting(m map[string]string, name string) int64 {
	n, err := strconv.ParseInt(textSetting(m, name), 10, 64)
	if err != nil {
		return 0 // only of a name that is no number: validated values and defaults are
	}
	return n
}

// maxTime keeps settings within what a time.Duration holds: a century is for ever.
const maxTime = 100 * 365 * 24 * time.Hour

func unitSetting(m map[string]string, name string, unit time.Duration) time.Duration {
	return time.Duration(min(setting(m, name), int64(maxTime/unit))) * unit
}

var migrations = map[string]group.Migration{
	"bidirectional": group.MigrationBoth, "upgrade": group.MigrationUpgrade,
	"downgrade": group.MigrationDowngrade, "disabled": group.MigrationDisabled,
}

// groupOptions makes the options of group machines from broker settings.
func groupOptions(m map[string]string) group.Options {
	ms := func(name string) time.Duration { return unitSetting(m, name, time.Millisecond) }
	return group.Options{
		NewID:                  uuid.NewString,
		MinSessionTimeout:      ms(cluster.GroupMinSession),
		MaxSessionTimeout:      ms(cluster.GroupMaxSession),
		InitialRebalanceDelay:  ms(cluster.GroupInitialDelay),
		MaxSize:                int(setting(m, cluster.GroupMaxSize)),
		OffsetsRetention:       unitSetting(m, cluster.OffsetsRetention, time.Minute),
		OffsetsRetentionCheck:  ms(cluster.OffsetsRetentionCheck),
		MaxOffsetMetadataBytes: int(setting(m, cluster.OffsetMetadataMaxBytes)),
		ConsumerSessionTimeout: ms(cluster.GroupConsumerSession),
		ConsumerHeartbeat:      ms(cluster.GroupConsumerHeartbeat),
		ConsumerMaxSize:        int(setting(m, cluster.GroupConsumerMaxSize)),
		ConsumerAssignors:      cluster.SplitList(textSetting(m, cluster.GroupConsumerAssignors)),
		ConsumerMigration:      migrations[strings.ToLower(textSetting(m, cluster.GroupConsumerMigration))],
	}
}
