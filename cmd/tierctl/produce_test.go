package main

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimestampsOfRealLines(t *testing.T) {
	for name, tc := range map[string]struct {
		line, pattern, format, want string
	}{
		"hdfs":      {"081109 203615 148 INFO dfs.DataNode$PacketResponder: x", `^\d{6} \d{6}`, "hdfs", "2008-11-09T20:36:15Z"},
		"hadoop":    {"2015-10-18 18:01:47,978 INFO [main] org.apache", `^(\S+ \S+)`, "log4j", "2015-10-18T18:01:47.978Z"},
		"openstack": {"nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO", `^\S+ (\S+ \S+)`, "iso", "2017-05-16T00:00:00.008Z"},
		"zookeeper": {"2015-07-29 17:41:44,747 - INFO  [QuorumPeer]", `^(\S+ \S+)`, "log4j", "2015-07-29T17:41:44.747Z"},
		"spark":     {"17/06/09 20:10:40 INFO executor", `^(\S+ \S+)`, "spark", "2017-06-09T20:10:40Z"},
		"bgl":       {"- 1117838570 2005.06.03 R02-M1", `^\S+ (\d+)`, "unix", "2005-06-03T22:42:50Z"},
		"unix-ms":   {"1438191704747 x", `^\d+`, "unix-ms", "2015-07-29T17:41:44.747Z"},
		"fraction":  {"1438191704.747 x", `^\S+`, "unix", "2015-07-29T17:41:44.747Z"},
		"layout":    {"29.07.2015 17h41 x", `^\S+ \S+`, "02.01.2006 15h04", "2015-07-29T17:41:00Z"},
		"zone":      {"18/Oct/2015:18:01:47 +0200 x", `^\S+ \S+`, "apache", "2015-10-18T16:01:47Z"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newLineParser(lineOptions{timestampPattern: tc.pattern, timestampFormat: tc.format, timezone: "UTC", missing: missingFail})
			require.NoError(t, err)
			_, stamp, err := p.take([]byte(tc.line))
			require.NoError(t, err)
			want, err := time.Parse(time.RFC3339Nano, tc.want)
			require.NoError(t, err)
			require.Equal(t, want.UnixMilli(), stamp.UnixMilli())
		})
	}
}

func TestTimestampsWithoutYearAreTheNearestPast(t *testing.T) {
	parse, err := newTimeParser("syslog", time.UTC)
	require.NoError(t, err)
	for _, text := range []string{"Jan  1 00:00:00", "Dec 31 23:59:59"} {
		got, err := parse(text)
		require.NoError(t, err)
		require.Less(t, time.Until(got), 25*time.Hour)
		require.Greater(t, time.Until(got), -366*24*time.Hour)
	}
}

func TestMissingTimestamps(t *testing.T) {
	options := lineOptions{timestampPattern: `^\d+`, timestampFormat: "unix", timezone: "UTC"}
	for missing, want := range map[string]int64{missingPrevious: 1438191704, missingNow: time.Time{}.Unix()} {
		o := options
		o.missing = missing
		p, err := newLineParser(o)
		require.NoError(t, err)
		_, _, err = p.take([]byte("1438191704 boom"))
		require.NoError(t, err)
		_, stamp, err := p.take([]byte("\tat java.lang.Thread"))
		require.NoError(t, err)
		require.Equal(t, want, stamp.Unix(), missing)
		require.Equal(t, 1, p.stampless)
		require.Zero(t, p.unread)
	}
	misfit := options
	misfit.missing, misfit.timestampFormat = missingPrevious, "log4j"
	p, err := newLineParser(misfit)
	require.NoError(t, err)
	_, _, err = p.take([]byte("1438191704 boom"))
	require.NoError(t, err)
	require.Equal(t, 1, p.unread, "found, but not in the form that was promised")
	require.Equal(t, "1438191704", p.example)
	options.missing = missingFail
	p, err = newLineParser(options)
	require.NoError(t, err)
	_, _, err = p.take([]byte("no number"))
	require.ErrorContains(t, err, `no timestamp in "no number"`)
}

func TestKeys(t *testing.T) {
	p, err := newLineParser(lineOptions{keyPattern: `blk_(-?\d+)|node=(\w+)`, missing: missingNow})
	require.NoError(t, err)
	for line, want := range map[string]string{"x blk_-17 y": "-17", "node=R02": "R02"} {
		key, _, err := p.take([]byte(line))
		require.NoError(t, err)
		require.Equal(t, want, string(key))
	}
	key, _, err := p.take([]byte("nothing"))
	require.NoError(t, err)
	require.Nil(t, key)
	require.Equal(t, 1, p.keyless)
}

func TestBadPatternsAreUsageErrors(t *testing.T) {
	for _, o := range []lineOptions{
		{keyPattern: "(", missing: missingNow},
		{missing: "never"},
		{timestampPattern: "x", timestampFormat: "unux", timezone: "UTC", missing: missingNow},
		{timestampPattern: "x", timestampFormat: "unix", timezone: "Mars/Base", missing: missingNow},
	} {
		_, err := newLineParser(o)
		require.ErrorAs(t, err, new(usageError))
	}
}

func TestLinesKeepEverythingButTheNewline(t *testing.T) {
	s := bufio.NewScanner(strings.NewReader("a\r\n\n\x00b\nlast"))
	s.Split(splitLines)
	var lines []string
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	require.Equal(t, []string{"a\r", "", "\x00b", "last"}, lines)
}

func TestPositions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]position{
		"earliest":             {kind: atEarliest},
		"latest":               {kind: atLatest},
		"1500":                 {kind: atOffset, offset: 1500},
		"@1438191704747":       {kind: atTime, ms: 1438191704747},
		"-1h":                  {kind: atTime, ms: now.Add(-time.Hour).UnixMilli()},
		"-7d":                  {kind: atTime, ms: now.AddDate(0, 0, -7).UnixMilli()},
		"2015-07-29":           {kind: atTime, ms: time.Date(2015, 7, 29, 0, 0, 0, 0, time.UTC).UnixMilli()},
		"2015-07-29 19:04:12":  {kind: atTime, ms: time.Date(2015, 7, 29, 19, 4, 12, 0, time.UTC).UnixMilli()},
		"2015-07-29T19:04:12Z": {kind: atTime, ms: time.Date(2015, 7, 29, 19, 4, 12, 0, time.UTC).UnixMilli()},
	} {
		got, err := parsePosition("from", text, now)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "@x", "yesterday", "2015-13-01"} {
		_, err := parsePosition("from", text, now)
		require.ErrorAs(t, err, new(usageError), text)
	}
}
