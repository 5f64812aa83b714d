package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// identity is what <data-dir>/meta.json holds: whose data this is.
type identity struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
	BrokerID  int32  `json:"broker_id"`
	// DirectoryID is unique to this data directory: a copy of a broker id in
	// another directory is another broker.
	DirectoryID string `json:"directory_id"`
}

const identityVersion = 1

// dataDir is a locked data directory.
type dataDir struct {
	path     string
	lock     *os.File
	identity identity
	fresh    bool // no identity was stored yet
}

// openDataDir creates the directory if it is missing, locks it for this process
// and reads its identity. Its errors are the operator's.
func openDataDir(path string, brokerID int32) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, mistake("can't create the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "LOCK"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, mistake("can't write to the data directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closeErr := lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, mistake("the data directory %s is in use by another process", path)
		}
		return nil, mistake("can't lock the data directory %s: %w", path, errors.Join(err, closeErr))
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.read(brokerID); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *dataDir) read(brokerID int32) error {
	file := filepath.Join(d.path, "meta.json")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		d.fresh = true
		d.identity = identity{Version: identityVersion, BrokerID: brokerID, DirectoryID: uuid.NewString()}
		return nil
	}
	if err != nil {
		return mistake("can't read the identity of the data directory: %w", err)
	}
	if err := json.Unmarshal(data, &d.identity); err != nil {
		return mistake("%s is damaged (%w): restore it, or move the data directory away", file, err)
	}
	if d.identity.Version != identityVersion {
		return mistake("%s was written by another version (format %d, this program knows %d)", file, d.identity.Version, identityVersion)
	}
	if d.identity.BrokerID != brokerID {
		return mistake("the data directory %s belongs to broker %d, not to broker %d: set broker-id or another data-dir",
			d.path, d.identity.BrokerID, brokerID)
	}
	return nil
}

// join checks the directory against the cluster, and notes the cluster when the
// directory is new.
func (d *dataDir) join(clusterID string) error {
	if d.identity.ClusterID == clusterID {
		return nil
	}
	if d.identity.ClusterID != "" {
		return mistake("the data directory %s belongs to cluster %s, the bucket to cluster %s: set another data-dir or bucket",
			d.path, d.identity.ClusterID, clusterID)
	}
	d.identity.ClusterID = clusterID
	return d.write()
}

// write replaces meta.json durably.
func (d *dataDir) write() error {
	data, err := json.MarshalIndent(d.identity, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(d.path, "meta.json")
	if err := writeSynced(file+".new", append(data, '\n')); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return syncDir(d.path)
}

// close gives the lock back.
func (d *dataDir) close() error { return d.lock.Close() }

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// bootID tells one boot of the machine from another; "" when it can't be known,
// which counts as another boot.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(data[:min(len(data), 36)])
}
