package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/config"
)

const (
	// etcdPatience is how long the first start in a data directory waits for an etcd
	// that doesn't answer: the address may be wrong. Later starts wait without end.
	etcdPatience = 20 * time.Second
	etcdRetry    = time.Second
	// etcdSlow is after how long a start says that it waits for etcd.
	etcdSlow = 10 * time.Second
)

// joinCluster starts the cluster client, and etcd with it unless endpoints are
// given, and settles whose data directory and bucket these are.
func (d *daemon) joinCluster(ctx context.Context) error {
	o, err := d.clusterOptions()
	if err != nil {
		return err
	}
	client, err := d.startCluster(ctx, o)
	if err != nil {
		return err
	}
	d.cluster = client
	d.onClose(client.Close)
	meta := client.Image().Meta()
	if d.dir.fresh {
		claim, cancel := context.WithTimeout(ctx, bucketPatience)
		defer cancel()
		if _, err := d.openCatalog(claim, true); err != nil {
			return awaitBucket(ctx, 0, func(context.Context) error { return err })
		}
	}
	return d.dir.join(meta.ClusterID)
}

// startCluster tries until etcd answers. An embedded member of a quorum waits for
// the others inside cluster.Start.
func (d *daemon) startCluster(ctx context.Context, o cluster.Options) (*cluster.Client, error) {
	slow := time.AfterFunc(etcdSlow, func() { d.log.Warn("waiting for etcd", d.etcdField()) })
	defer slow.Stop()
	deadline := time.Now().Add(etcdPatience)
	for {
		client, err := cluster.Start(ctx, o)
		switch {
		case err == nil:
			return client, nil
		case errors.Is(err, cluster.ErrNoCluster):
			return nil, mistake("can't join the cluster: etcd is empty, but the data directory or the bucket belongs to cluster %s: "+
				"is it the right etcd (%s)? If it lost its data, the cluster must be restored from its bucket", o.ClusterID, d.etcdName())
		case errors.Is(err, cluster.ErrOtherCluster), errors.Is(err, cluster.ErrSchema), errors.Is(err, cluster.ErrInUse), errors.Is(err, cluster.ErrMember),
			errors.Is(err, cluster.ErrRestoring):
			return nil, mistake("can't join the cluster: %w", err)
		case errors.Is(err, cluster.ErrDamaged), errors.Is(err, cluster.ErrStopped):
			return nil, d.etcdFailed(err)
		case ctx.Err() != nil || !errors.Is(err, cluster.ErrUnavailable) || o.Embedded != nil:
			return nil, fmt.Errorf("start the cluster client: %w", err)
		case d.dir.fresh && time.Now().After(deadline):
			return nil, mistake("can't reach etcd at %s: %w", d.etcdName(), err)
		}
		select {
		case <-time.After(etcdRetry):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// etcdFailed says what to do about an embedded etcd that can't start or go on.
func (d *daemon) etcdFailed(err error) error {
	switch {
	case errors.Is(err, cluster.ErrDamaged):
		return mistake("%w; restore %s from a backup. Without one the topics and settings are lost: move the data directory away and start with a new one "+
			"and another bucket or prefix. What is archived stays readable with tierctl archive", err, d.etcdDir())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return mistake("%w; free space on the disk of %s and start again, nothing is lost", err, d.etcdDir())
	}
	return err
}

func (d *daemon) etcdField() zap.Field { return zap.String("etcd", d.etcdName()) }

// etcdName says where the cluster's state is.
func (d *daemon) etcdName() string {
	switch c := d.config; {
	case len(c.EtcdEndpoints) > 0:
		return fmt.Sprint(c.EtcdEndpoints)
	case len(c.Controllers) > 0:
		return fmt.Sprintf("%s, with %v", d.etcdDir(), c.Controllers)
	}
	return d.etcdDir()
}

func (d *daemon) clusterOptions() (cluster.Options, error) {
	c, s := d.config, d.config.ClusterSecurity
	known := cmp.Or(d.dir.identity.ClusterID, d.rootID)
	o := cluster.Options{Prefix: c.EtcdPrefix, BrokerID: c.BrokerID, Static: staticSettings(c, d.host, d.port), Logger: d.log,
		ClusterID: known, Existing: known != "", Endpoints: c.EtcdEndpoints}
	if len(c.EtcdEndpoints) == 0 {
		var err error
		o.Embedded, err = d.embedded()
		return o, err
	}
	if s["etcd-ca"] != "" || s["etcd-cert"] != "" {
		var err error
		if o.TLS, err = clientTLS("etcd", s); err != nil {
			return o, err
		}
	}
	if s["etcd-user"] != "" {
		password, err := os.ReadFile(s["etcd-password-file"])
		if err != nil {
			return o, mistake("cluster-security: etcd-password-file: %w", err)
		}
		o.Username, o.Password = s["etcd-user"], string(bytes.TrimRight(password, "\r\n"))
	}
	return o, nil
}

// clientTLS reads the files of one part of cluster-security.
func clientTLS(part string, s map[string]string) (*tls.Config, error) {
	t, err := cluster.ClientTLS(s[part+"-ca"], s[part+"-cert"], s[part+"-key"])
	if err != nil {
		return nil, mistake("cluster-security: %s: %w", part, err)
	}
	return t, nil
}

// embedded describes the etcd inside this process.
func (d *daemon) embedded() (*cluster.EmbeddedOptions, error) {
	c, s := d.config, d.config.ClusterSecurity
	o := &cluster.EmbeddedOptions{Dir: d.etcdDir(), Logger: d.log, ClientListen: c.EtcdListen}
	members, err := c.Quorum()
	if err != nil {
		return nil, mistake("controllers: %w", err)
	}
	for _, m := range members {
		o.Members = append(o.Members, cluster.Member{Name: memberName(m.ID), Peer: hostPort(m.Host, m.Port)})
	}
	if len(members) > 0 {
		o.Name = memberName(c.BrokerID)
	}
	if s["etcd-cert"] != "" {
		o.TLS = &cluster.ServerTLS{CA: s["etcd-ca"], Cert: s["etcd-cert"], Key: s["etcd-key"]}
	}
	return o, nil
}

func memberName(id int32) string { return fmt.Sprintf("%s-%d", config.RoleController, id) }
