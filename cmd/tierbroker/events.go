package main

import (
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tierbroker/tierbroker/admin"
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

// controllerEvent logs what package controller reports.
func controllerEvent(log *zap.Logger) func(controller.Event) {
	return func(e controller.Event) {
		switch e.Kind {
		case controller.Elected:
			log.Debug("this node is the controller")
		case controller.Deposed:
			log.Debug("this node is no longer the controller", zap.Error(e.Err))
		case controller.Changed:
			for _, c := range e.Changes {
				log.Debug("assignment", zap.Stringer("id", c.ID), zap.Int32("owner", c.New.Owner), zap.Int32("epoch", c.New.Epoch),
					zap.Stringer("state", c.New.State), zap.String("why", c.Why))
			}
		case controller.NameFreed:
			log.Info("topic deleted", zap.String("topic", e.Name), zap.Stringer("id", e.Topic))
		case controller.PlanFailed:
			log.Warn("assignments could not be changed; trying again", zap.Error(e.Err))
		case controller.CatalogFail:
			log.Warn("the bucket's copy of topics and settings is not kept current", zap.Error(e.Err))
		}
	}
}
