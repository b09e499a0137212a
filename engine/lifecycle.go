// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
)

const (
	// clientScanInterval is how often silent clients are looked for. Source: ClientHousekeepingService.
	clientScanInterval = 10 * time.Second
	// persistRetryInterval is how often tables that event loops changed are offered to the file again, in case the
	// admin lane was full.
	persistRetryInterval = 5 * time.Second
	// drainPoll is how often a stop looks whether what is under way has ended.
	drainPoll = 2 * time.Millisecond
	// closeTimeMin is what the store gets for its last flush however long clients took.
	closeTimeMin = 2 * time.Second
	// serverStopShare of the stop's time is kept for the client port: what was answered has to leave.
	serverStopShare = 3
)

// Start brings the broker up: descriptors, then what is on disk (locked, loaded, recovered), then the store's services,
// then replication, then the client port, then the name servers. It returns when clients are served. After an error everything that had
// begun is stopped again.
func (b *BrokerController) Start(ctx context.Context) (err error) {
	if b.life.started {
		return errors.New("a broker starts once")
	}
	b.life.started = true
	defer func() {
		if err != nil {
			_ = b.Shutdown(startFailedTimeout)
		}
	}()
	sayStart(b.logger, b.fs, b.Config())
	steps := []func() error{b.openStore, b.loadTables, b.startStore, b.startReplication, b.startServer, b.startOuter}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	b.logger.Info(b.BootLine())
	return nil
}

// BootLine is what scripts that start a broker wait for. Source: BrokerStartup#start.
func (b *BrokerController) BootLine() string {
	cfg := b.Config()
	line := fmt.Sprintf("The broker[%s, %s] boot success. serializeType=JSON", cfg.BrokerName, b.BrokerAddr())
	if cfg.NamesrvAddr != "" {
		line += " and name server is " + cfg.NamesrvAddr
	}
	return line
}

// startFailedTimeout bounds the stop after a start that failed: no client was served.
const startFailedTimeout = 5 * time.Second

func (b *BrokerController) startStore() (err error) {
	b.outer, err = newBrokerOuterAPI(b.logger, b.Config, b.topics.All, b.applyOrderTopics)
	if err != nil {
		return err
	}
	if err := b.newReplication(); err != nil {
		return err
	}
	b.startLanes()
	return b.store.Start()
}

func (b *BrokerController) startServer() error {
	cfg := b.Config()
	host, err := resolveHost(cfg.BrokerIP1)
	if err != nil {
		return err
	}
	b.newServer()
	b.storeHost.Store(new(netip.AddrPortFrom(host, uint16(cfg.ListenPort))))
	b.hold.Start()
	b.life.holdStarted = true
	if cfg.Store.Role != storage.Slave {
		b.schedule.Start()
		b.life.scheduleStarted = true
	}
	b.startPeriodic()
	if cfg.Store.Role != storage.Slave && b.offsets.slaveSeen.Load() {
		b.offers.expect()
	}
	if err := b.server.Start(); err != nil {
		return err
	}
	b.life.serverStarted = true
	b.storeHost.Store(new(netip.AddrPortFrom(host, b.server.Addr().Port())))
	b.life.serving.Store(true)
	go b.watch("client port", b.server.Done(), b.server.Err)
	return nil
}

func (b *BrokerController) startOuter() error {
	b.outer.Start(outerIdentity{addr: b.BrokerAddr(), haServerAddr: b.haServerAddr()})
	if b.haClient != nil {
		b.slaveSync = newSlaveSynchronize(b)
		b.slaveSync.Start()
	}
	return nil
}

func (b *BrokerController) startPeriodic() {
	b.every(eachSecond, func(now time.Time) { b.stats.Sample(now, b.store.Stats()) })
	b.every(fixed(clientScanInterval), b.expireClients)
	b.every(millis(func(c *Config) int64 { return c.FlushConsumerOffsetInterval }, b), func(time.Time) {
		if err := b.offsets.Persist(); err != nil {
			b.logger.Error("consumer offsets not saved, will be tried again", "err", err)
		}
	})
	b.every(fixed(persistRetryInterval), func(time.Time) {
		b.topics.table.persistSoon()
		b.groups.table.persistSoon()
	})
}

// watch makes an event loop engine that ended unasked the end of the broker: a port that nobody serves must not look
// alive.
func (b *BrokerController) watch(what string, done <-chan struct{}, cause func() error) {
	<-done
	if err := cause(); err != nil {
		b.life.serving.Store(false)
		b.logger.Error("the "+what+" ended unasked", "err", err)
		b.life.finish(fmt.Errorf("%s: %w", what, err))
	}
}

// Done is closed when the broker has ended, by Shutdown or by itself; Err then says why, nil after Shutdown.
func (b *BrokerController) Done() <-chan struct{} { return b.life.end }

// Err is valid once Done is closed.
func (b *BrokerController) Err() error {
	select {
	case <-b.life.end:
		return b.life.endErr
	default:
		return nil
	}
}

// Shutdown stops the broker in the order that loses no reply and makes unmapping safe: name servers first, so that
// clients go elsewhere; then no new requests; what was accepted is answered; answers leave; event loops end; workers and
// services end; tables are saved; the store closes. timeout bounds the waits for clients and the disk. A second call
// returns what the first did. It is for a broker on which Start was called.
func (b *BrokerController) Shutdown(timeout time.Duration) error {
	b.life.stopOnce.Do(func() {
		began := time.Now()
		b.life.stopErr = b.shutdown(began.Add(timeout))
		b.life.finish(nil)
		took := time.Since(began).Round(time.Millisecond)
		if err := b.life.stopErr; err != nil {
			b.logger.Error("the broker has stopped, not in order", "took", took, "err", err)
			return
		}
		b.logger.Info("the broker has stopped", "took", took)
	})
	return b.life.stopErr
}

func (b *BrokerController) shutdown(deadline time.Time) error {
	b.life.serving.Store(false)
	if b.outer != nil {
		b.outer.Shutdown()
	}
	if b.life.serverStarted {
		b.server.RefuseNew(remoting.ServiceNotAvailable, remarkShuttingDown)
	}
	b.stopFollowing()
	b.offers.arrived()
	var scheduleErr error
	if b.life.scheduleStarted {
		scheduleErr = b.schedule.Stop()
	}
	if b.life.serverStarted {
		share := time.Until(deadline) / serverStopShare
		b.drain(deadline.Add(-share))
	}
	b.stopReplication()
	if b.life.holdStarted {
		b.hold.Stop()
	}
	if b.life.serverStarted {
		b.server.Stop(time.Until(deadline))
	}
	close(b.life.stopPeriodic)
	b.life.periodic.Wait()
	for _, lane := range b.lanes() {
		if lane != nil {
			lane.Stop()
		}
	}
	return errors.Join(scheduleErr, b.closeFiles(deadline))
}

// closeFiles saves the tables and closes the store. A disk that hangs does not keep the process: it may end, and the
// next start recovers.
func (b *BrokerController) closeFiles(deadline time.Time) error {
	done := make(chan error, 1)
	go func() { done <- errors.Join(b.saveTables(), b.closeStore()) }()
	timer := time.NewTimer(max(time.Until(deadline), closeTimeMin))
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errors.New("the store did not close in time, the disk hangs: the next start recovers it")
	}
}

// drain waits until nothing that was accepted is under way: first what the workers have, which may put messages, then
// the store's puts and their flushes, then the slaves that are not far behind. What the store still has at the deadline
// is answered SERVICE_NOT_AVAILABLE.
func (b *BrokerController) drain(deadline time.Time) {
	for time.Now().Before(deadline) && !b.idle() {
		time.Sleep(drainPoll)
	}
	b.store.Drain(deadline)
	for time.Now().Before(deadline) && !b.ha.Idle() {
		time.Sleep(drainPoll)
	}
}

func (b *BrokerController) idle() bool {
	for _, lane := range b.lanes() {
		if !lane.Idle() {
			return false
		}
	}
	return true
}

func (b *BrokerController) saveTables() (err error) {
	if b.schedule == nil { // the start ended before them
		return nil
	}
	return errors.Join(b.topics.Persist(), b.groups.Persist(), b.offsets.Persist())
}

func (b *BrokerController) closeStore() error {
	if b.store == nil {
		return nil
	}
	return b.store.Close()
}
