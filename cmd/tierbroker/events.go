package main

import (
	"context"
	"errors"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// partitionEvent logs what package partition reports.
func partitionEvent(log *zap.Logger, losses *lossLog) func(partition.Event) {
	levels := map[partition.Level]zapcore.Level{partition.Debug: zap.DebugLevel, partition.Info: zap.InfoLevel,
		partition.Warn: zap.WarnLevel, partition.Error: zap.ErrorLevel}
	return func(e partition.Event) {
		if e.Loss != nil {
			losses.add(e.Topic, e.Partition.Partition, *e.Loss)
			e.Level = partition.Debug // once for all of them is enough
		}
		var fields []zap.Field
		if e.Topic != "" {
			fields = append(fields, zap.String("topic", e.Topic), zap.Int32("partition", e.Partition.Partition))
		}
		if e.Err != nil {
			fields = append(fields, zap.Error(e.Err))
		}
		log.Log(levels[e.Level], e.Message, fields...)
	}
}

// kafkaEvent logs and counts connections that were closed for a fault.
func kafkaEvent(log *zap.Logger, metrics *admin.Metrics) func(kafka.Event) {
	return func(e kafka.Event) {
		metrics.ConnectionFault(e.Kind.String())
		level := zap.WarnLevel
		if e.Kind == kafka.EventIdle {
			level = zap.DebugLevel
		}
		fields := []zap.Field{zap.String("why", e.Message), zap.String("remote", e.Remote)}
		if e.ClientID != "" {
			fields = append(fields, zap.String("client", e.ClientID))
		}
		if e.Err != nil && !strings.Contains(e.Message, e.Err.Error()) { // one text, once
			fields = append(fields, zap.Error(e.Err))
		}
		if e.Suppressed > 0 {
			fields = append(fields, zap.Int64("not_told", e.Suppressed))
		}
		log.Log(level, "connection closed", fields...)
	}
}

// controllerEvent logs what package controller reports. A planned move is three lines at info: that it begins, the hand-over,
// and the new owner's own line when it serves. Every line about a partition names topic, partition and epoch as
// the lines of its owners do, so that one search follows it from broker to broker.
func controllerEvent(log *zap.Logger) func(controller.Event) {
	return func(e controller.Event) {
		switch e.Kind {
		case controller.Elected:
			log.Info("this node is the controller")
		case controller.Deposed:
			var fields []zap.Field
			if !errors.Is(e.Err, context.Canceled) { // it is stopping, as was asked
				fields = append(fields, zap.Error(e.Err))
			}
			log.Info("this node is no longer the controller", fields...)
		case controller.Changed:
			for i := range e.Changes {
				logChange(log, &e.Changes[i])
			}
		case controller.Observed:
			for i := range e.Steps {
				logStep(log, &e.Steps[i])
			}
		case controller.Rebalanced:
			log.Info("partitions are evened out over the brokers", zap.Int("moves", len(e.Rebalance.Moves)))
		case controller.PlanFailed:
			log.Warn("assignments could not be changed; trying again", zap.Error(e.Err))
		case controller.CatalogFail:
			log.Warn("the bucket's copy of topics and settings is not kept current", zap.Error(e.Err))
		}
	}
}

var changeLevels = map[controller.Kind]zapcore.Level{
	controller.Place: zap.DebugLevel, controller.Pin: zap.DebugLevel, controller.Force: zap.WarnLevel, controller.StopMove: zap.WarnLevel,
} // all others: info

func logChange(log *zap.Logger, c *controller.Change) {
	level := changeLevels[c.Kind]
	if c.Kind == controller.EndWish {
		level = zap.WarnLevel
		if c.Done {
			level = zap.DebugLevel // the hand-over has been told
		}
	}
	fields := []zap.Field{zap.String("change", c.Kind.String()), zap.String("topic", c.Topic), zap.Int32("partition", c.ID.Partition)}
	switch c.Kind {
	case controller.EndWish:
		fields = append(fields, zap.Int32("to", c.To()), zap.Bool("done", c.Done))
	case controller.FreeName:
		fields = []zap.Field{zap.String("change", c.Kind.String()), zap.String("topic", c.Topic), zap.Stringer("id", c.ID.Topic)}
	default:
		fields = append(fields, zap.Int32("epoch", c.New.Epoch), zap.Int32("from", c.From()), zap.Int32("to", c.To()),
			zap.Stringer("was", c.Old.State), zap.Stringer("state", c.New.State), zap.Bool("safe", c.New.Safe))
	}
	log.Log(level, "assignment", append(fields, zap.String("why", c.Why))...)
}

func logStep(log *zap.Logger, s *controller.Step) {
	level, why := zap.DebugLevel, "by its owner"
	switch {
	case s.HandOver():
		level, why = zap.InfoLevel, "handed over"
	case s.New.State == cluster.Failed:
		level, why = zap.WarnLevel, s.New.Reason
	case s.New.Warm != s.Old.Warm:
		why = "its target is warm"
	}
	fields := []zap.Field{zap.String("change", "observed"), zap.String("topic", s.Topic), zap.Int32("partition", s.ID.Partition),
		zap.Int32("epoch", s.New.Epoch), zap.Int32("from", s.Old.Owner), zap.Int32("to", s.New.Owner),
		zap.Stringer("was", s.Old.State), zap.Stringer("state", s.New.State), zap.Bool("safe", s.New.Safe)}
	if s.MovedIn > 0 {
		fields = append(fields, zap.Int64("ms", s.MovedIn))
	}
	log.Log(level, "assignment", append(fields, zap.String("why", why))...)
}
