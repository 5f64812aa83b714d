// Command localcluster runs a whole cluster on this machine, for trying things out: an S3 server, controllers and brokers,
// each a process on 127.0.0.1 with its own data directory. Their logs come out with their names in front. Ctrl-C, or the
// end of the S3 server or of a controller, stops all; a broker that ends is told and left ended, so that failover can be
// watched. The README says which ports are used; -offset moves all of them.
//
// It is started by "make cluster", which builds the programs first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
)

// The ports, before -offset is added. Numbers count from 1: broker 2 has 9093.
const (
	portS3         = 9600
	portKafka      = 9091
	portAdmin      = 9643 // of brokers
	portPeer       = 9660 // of brokers
	portController = 9680 // ten for each controller: etcd, its peers, admin, peer
)

const (
	accessKey, secretKey = "local", "local-secret" // the S3 server listens on 127.0.0.1 only
	bucketName           = "tierbroker"
	region               = "us-east-1"
	readyIn              = time.Minute
	// stopIn is more than a broker takes that waits for its partitions to be moved away.
	stopIn = 45 * time.Second
)

type options struct {
	brokers, controllers, offset int
	dir, bin, s3, lease, level   string
}

func main() {
	var o options
	flag.IntVar(&o.brokers, "brokers", 3, "number of brokers")
	flag.IntVar(&o.controllers, "controllers", 1, "number of controllers: 1, or 3 for a quorum")
	flag.IntVar(&o.offset, "offset", 0, "added to every port")
	flag.StringVar(&o.dir, "dir", "data-cluster", "directory for everything that is kept")
	flag.StringVar(&o.bin, "bin", "bin", "directory of the tierbroker program")
	flag.StringVar(&o.s3, "s3", ".tools/bin/versitygw", "S3 server program (versitygw)")
	flag.StringVar(&o.lease, "lease-ttl", "10s", "time after which a silent broker is taken for dead")
	flag.StringVar(&o.level, "log-level", "info", "of all processes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "localcluster: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.brokers < 1 || o.brokers > 9 || o.controllers < 1 || o.controllers > 5 {
		return errors.New("1 to 9 brokers and 1 to 5 controllers fit the ports")
	}
	c := &cluster{o: o, ended: make(chan *process, 16)}
	err := c.start(ctx)
	if err == nil {
		c.welcome()
		err = c.watch(ctx)
	}
	return errors.Join(err, c.stop())
}

// cluster is the processes, in the order in which they were started.
type cluster struct {
	o         options
	processes []*process
	ended     chan *process
}

func (c *cluster) addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port+c.o.offset) }

func (c *cluster) etcd(controller int) string { return c.addr(portController + 10*(controller-1)) }

func (c *cluster) start(ctx context.Context) error {
	if err := c.startS3(ctx); err != nil {
		return err
	}
	var wait []string
	for i := 1; i <= c.o.controllers; i++ {
		admin, err := c.startController(i)
		if err != nil {
			return err
		}
		wait = append(wait, admin)
	}
	if err := c.ready(ctx, wait); err != nil {
		return err
	}
	wait = wait[:0]
	for i := 1; i <= c.o.brokers; i++ {
		admin, err := c.startBroker(i)
		if err != nil {
			return err
		}
		wait = append(wait, admin)
	}
	return c.ready(ctx, wait)
}

func (c *cluster) startS3(ctx context.Context) error {
	dir := filepath.Join(c.o.dir, "s3")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	addr := c.addr(portS3)
	if err := c.launch("s3", true, []string{"ROOT_ACCESS_KEY=" + accessKey, "ROOT_SECRET_KEY=" + secretKey},
		c.o.s3, "--port", addr, "--region", region, "--quiet", "posix", dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	so := s3.Options{URL: c.bucketURL(), AccessKey: accessKey, SecretKey: secretKey}
	so.URL.Prefix = ""
	for {
		err := s3.Create(ctx, so)
		if err == nil {
			return nil
		}
		if perr := c.pause(ctx); perr != nil {
			return fmt.Errorf("the S3 server does not answer: %w", errors.Join(err, perr))
		}
	}
}

func (c *cluster) bucketURL() bucket.URL {
	return bucket.URL{Scheme: bucket.SchemeS3, Bucket: bucketName, Prefix: "cluster", Endpoint: c.addr(portS3), Plain: true, Region: region, PathStyle: true}
}

// common are the arguments and variables of every tierbroker process.
func (c *cluster) common(name string, id int) (args, env []string) {
	return []string{"run", "--data-dir", filepath.Join(c.o.dir, name), "--broker-id", fmt.Sprint(id), "--bucket", c.bucketURL().String(), "--log-level", c.o.level},
		[]string{"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secretKey, "AWS_REGION=" + region, "TIERBROKER_LEASE_TTL=" + c.o.lease}
}

// startController starts one controller; their ids begin at 101, apart from those of brokers.
func (c *cluster) startController(i int) (admin string, err error) {
	name := fmt.Sprintf("controller-%d", i)
	args, env := c.common(name, 100+i)
	port := portController + 10*(i-1)
	admin = c.addr(port + 2)
	args = append(args, "--roles", "controller", "--etcd-listen", c.addr(port), "--admin-listen", admin, "--peer-listen", c.addr(port+3))
	if c.o.controllers > 1 {
		var members []string
		for n := 1; n <= c.o.controllers; n++ {
			members = append(members, fmt.Sprintf("%d@%s", 100+n, c.addr(portController+10*(n-1)+1)))
		}
		args = append(args, "--controllers", strings.Join(members, ","))
	}
	return admin, c.launch(name, c.o.controllers == 1, env, filepath.Join(c.o.bin, "tierbroker"), args...)
}

func (c *cluster) startBroker(i int) (admin string, err error) {
	name := fmt.Sprintf("broker-%d", i)
	args, env := c.common(name, i)
	var endpoints []string
	for n := 1; n <= c.o.controllers; n++ {
		endpoints = append(endpoints, "http://"+c.etcd(n))
	}
	admin = c.addr(portAdmin + i)
	args = append(args, "--roles", "broker", "--etcd-endpoints", strings.Join(endpoints, ","), "--kafka-listen", c.addr(portKafka+i),
		"--admin-listen", admin, "--peer-listen", c.addr(portPeer+i))
	return admin, c.launch(name, false, env, filepath.Join(c.o.bin, "tierbroker"), args...)
}

// ready waits until every admin address says that its node is.
func (c *cluster) ready(ctx context.Context, admins []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	for _, admin := range admins {
		for !isReady(ctx, admin) {
			if err := c.pause(ctx); err != nil {
				return fmt.Errorf("http://%s/readyz: %w", admin, err)
			}
		}
	}
	return nil
}

func isReady(ctx context.Context, admin string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// pause waits a moment; it fails when ctx or a process has ended.
func (c *cluster) pause(ctx context.Context) error {
	select {
	case p := <-c.ended:
		return fmt.Errorf("%s ended: %s", p.name, p.cmd.ProcessState)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

func (c *cluster) welcome() {
	var kafka []string
	for i := 1; i <= c.o.brokers; i++ {
		kafka = append(kafka, c.addr(portKafka+i))
	}
	host, port, err := net.SplitHostPort(c.addr(portAdmin + 1))
	if err != nil {
		return
	}
	fmt.Printf(`
%d brokers and %d controllers run; Ctrl-C stops them. What they keep is in %s.
  Kafka clients:  %s
  tierctl:        bin/tierctl --bootstrap %s --admin http://%s:%s topic list
  bucket:         %s (AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s)
  etcd:           http://%s

`, c.o.brokers, c.o.controllers, c.o.dir, strings.Join(kafka, ","), kafka[0], host, port, c.bucketURL(), accessKey, secretKey, c.etcd(1))
}
