// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loopmq/ha"
	"loopmq/reactor/remoting"
	"loopmq/storage"
)

// haStateFile keeps what replication must know after a restart; it lies beside the log's directory.
const haStateFile = "ha.json"

// haConfigOf is replication's part of the settings.
func haConfigOf(c *Config) *ha.Config {
	allow, err := ha.ParseAllowList(c.HAAllowList)
	if err != nil {
		panic(fmt.Sprintf("BUG: a checked haAllowList: %v", err))
	}
	bind := c.HABindAddress
	if bind == "" {
		bind = c.BindAddress
	}
	return &ha.Config{
		Role:                      c.Store.Role,
		BrokerID:                  c.BrokerID,
		Addr:                      net.JoinHostPort(bind, strconv.Itoa(c.HAListenPort)),
		HaMasterAddress:           c.HAMasterAddress,
		HaSendHeartbeatInterval:   time.Duration(c.HASendHeartbeatInterval) * time.Millisecond,
		HaHousekeepingInterval:    time.Duration(c.HAHousekeepingInterval) * time.Millisecond,
		HaTransferBatchSize:       c.HATransferBatchSize,
		HaSlaveFallbehindMax:      c.HASlaveFallbehindMax,
		InSyncReplicas:            c.InSyncReplicas,
		SlaveTimeout:              time.Duration(c.Store.SlaveTimeout) * time.Millisecond,
		HaFlowControlEnable:       c.HAFlowControlEnable,
		MaxHaTransferByteInSecond: c.MaxHATransferByteInSecond,
		HaAllowList:               allow,
		HaRetainedMax:             c.HARetainedMax,
		HaReportSynced:            c.HAReportSynced,
		HaTailTimeout:             time.Duration(c.HATailTimeout) * time.Millisecond,
		MappedFileSizeCommitLog:   c.Store.MappedFileSizeCommitLog,
	}
}

// useConfig puts a checked configuration in force. cfg is not changed afterwards.
func (b *BrokerController) useConfig(cfg *Config) {
	b.config.Store(cfg)
	b.haConfig.Store(haConfigOf(cfg))
}

// newReplication makes both sides of replication: every broker listens for slaves, as in RocketMQ, and a slave follows a
// master.
func (b *BrokerController) newReplication() (err error) {
	opts := ha.Options{
		Config: b.haConfig.Load, Store: b.store, Logger: b.logger, FS: b.fs,
		StatePath:       filepath.Join(b.Config().Store.StorePathRootDir, haStateFile),
		MasterAddress:   func() string { _, addr := b.outer.Master(); return addr },
		MasterMinOffset: b.masterMinOffset,
		Boot:            b.boot,
		Serve:           b.lowerOffsets,
		Cut:             b.logCut,
	}
	if b.ha, err = ha.NewHAService(opts); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if b.replicas == nil {
		b.replicas = b.ha
	}
	if b.Config().Store.Role == storage.Slave {
		b.haClient = ha.NewHAClient(opts, b.ha)
		b.outer.masterChanged = b.haClient.Wakeup
	}
	return nil
}

// lowerOffsets is told that this master takes sends from now on, with all of the log that it will get back. A slave's
// offsets are its master's, and may be ahead of its log; queues that wait for room on the disk have no end yet.
func (b *BrokerController) lowerOffsets() {
	if b.store.DispatchBehindBytes() == 0 {
		b.offsets.lowerTo(b.queueEnd)
	}
}

// logCut is told that this slave's log was cut. Groups that read here had seen what has disappeared.
func (b *BrokerController) logCut(storage.PhyOffset) {
	b.offsets.lowerToCut(b.queueEnd)
	if err := b.offsets.Persist(); err != nil {
		b.logger.Error("consumer offsets not saved, will be tried again", "err", err)
	}
}

// bootID names the boot of the machine; empty when the kernel does not tell.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// startReplication comes after the store's services and before the client port. Source: HAService#start.
func (b *BrokerController) startReplication() error {
	if err := b.ha.Start(); err != nil {
		return fmt.Errorf("port for slaves: %w", err)
	}
	b.life.haStarted = true
	go b.watch("port for slaves", b.ha.Done(), b.ha.Err)
	if b.haClient == nil {
		return nil
	}
	if err := b.haClient.Start(); err != nil {
		return fmt.Errorf("client of the master: %w", err)
	}
	b.life.haClientStarted = true
	return nil
}

// stopFollowing ends the slave's side; nothing is appended by a master's frames after it.
func (b *BrokerController) stopFollowing() {
	if b.slaveSync != nil {
		b.slaveSync.Stop()
	}
	if b.life.haClientStarted {
		b.haClient.Stop()
	}
}

// stopReplication ends the master's side. What slaves have not acknowledged by now is answered FLUSH_SLAVE_TIMEOUT.
func (b *BrokerController) stopReplication() {
	if b.life.haStarted {
		b.ha.Stop()
	}
}

// haServerAddr is what slaves are told through the name servers. Source: BrokerController#getHAServerAddr.
func (b *BrokerController) haServerAddr() string {
	return net.JoinHostPort(b.Config().BrokerIP2, strconv.Itoa(int(b.ha.Addr().Port())))
}

// masterAddr is the client port of this slave's master: masterAddr if it is set, else what a name server told; empty
// while nobody did.
func (b *BrokerController) masterAddr() string {
	if addr := b.Config().MasterAddr; addr != "" {
		return addr
	}
	addr, _ := b.outer.Master()
	return addr
}

// masterMinOffset asks the master where its log begins, by its runtime information.
func (b *BrokerController) masterMinOffset(ctx context.Context) (storage.PhyOffset, error) {
	addr := b.masterAddr()
	if addr == "" {
		return 0, errors.New("the master's client port is not known: no name server has told it, and masterAddr is not set")
	}
	resp, err := b.outer.client.Invoke(ctx, addr, &remoting.Command{Code: remoting.GetBrokerRuntimeInfo, Version: remoting.Version})
	if err != nil {
		return 0, fmt.Errorf("runtime information of the master: %w", err)
	}
	if resp.Code != remoting.Success {
		return 0, fmt.Errorf("runtime information of the master: code %d %s", resp.Code, resp.Remark)
	}
	return decodeMinOffset(resp.Body)
}

// decodeMinOffset finds commitLogMinOffset in a KVTable.
func decodeMinOffset(body []byte) (storage.PhyOffset, error) {
	found := int64(-1)
	r := newJSONReader(body)
	err := r.object(func(key []byte) error {
		if string(key) != "table" {
			return r.skip()
		}
		return r.object(func(key []byte) error {
			if string(key) != "commitLogMinOffset" {
				return r.skip()
			}
			text, err := r.text()
			if err != nil {
				return err
			}
			found, err = strconv.ParseInt(text, 10, 64)
			return err
		})
	})
	if err == nil && found < 0 {
		err = errors.New("no commitLogMinOffset in it")
	}
	if err != nil {
		return 0, fmt.Errorf("runtime information of the master: %w", err)
	}
	return storage.PhyOffset(found), nil
}
