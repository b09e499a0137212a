// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/vfs"
)

const (
	// cleanFirstDelay is how long after the start the first round comes; the disk's state is looked at at once.
	// Source: DefaultMessageStore#addScheduleTask.
	cleanFirstDelay = time.Minute
	// deleteFileBatchMax bounds the log files that one round deletes. Source: MappedFileQueue#DELETE_FILES_BATCH_MAX.
	deleteFileBatchMax = 10
	// manualDeleteRounds is how many rounds the admin command is good for.
	// Source: CleanCommitLogService#MAX_MANUAL_DELETE_FILE_TIMES.
	manualDeleteRounds = 20
)

// cleanService deletes what is old, or for want of space, oldest first and never the last file; and it says when the
// disk is too full for sends. A file's readers keep its mapping until they are through: nothing is unmapped under them,
// however long they take. Source: CleanCommitLogService, CleanConsumeQueueService.
type cleanService struct {
	store  *MessageStore
	fs     vfs.FS
	logger *slog.Logger
	now    func() time.Time

	manual     atomic.Int32 // rounds left
	queuesOnly atomic.Bool  // asked for by the admin
	wake       chan struct{}
	stopped    chan struct{}
	done       chan struct{}

	deleted   atomic.Int64
	ratios    atomic.Pointer[diskRatios] // as last seen
	cleanedTo PhyOffset                  // queues and index have been cleaned up to here

	running sync.Mutex // held for a round, and while a slave's log is cut

	mu   sync.Mutex // guards held
	held []heldFile
}

// heldFile is a deleted file that somebody still reads.
type heldFile struct {
	file     *MappedFile
	since    time.Time
	reported time.Time
}

func newCleanService(s *MessageStore) *cleanService {
	return &cleanService{
		store: s, fs: s.fs, logger: s.logger, now: time.Now,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (c *cleanService) start() { go c.run() }

func (c *cleanService) stop() {
	close(c.stopped)
	<-c.done
}

func (c *cleanService) deleteManually() {
	c.manual.Store(manualDeleteRounds)
	c.wakeup()
}

func (c *cleanService) cleanQueues() {
	c.queuesOnly.Store(true)
	c.wakeup()
}

func (c *cleanService) wakeup() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cleanService) run() {
	defer close(c.done)
	defer restoreFaults(debug.SetPanicOnFault(true))
	began := c.now()
	c.checkDisk(c.store.Config())
	for {
		timer := time.NewTimer(millis(c.store.Config().CleanResourceInterval))
		asked := false
		select {
		case <-timer.C:
		case <-c.wake:
			asked = true
		case <-c.stopped:
			timer.Stop()
			return
		}
		timer.Stop()
		if err := c.round(c.now(), asked || c.now().Sub(began) >= cleanFirstDelay); err != nil {
			c.logger.Error("cleaning up failed", "cause", err)
		}
	}
}

// round is one step: the disk's state always, deletion when it may.
func (c *cleanService) round(now time.Time, mayDelete bool) (err error) {
	c.running.Lock()
	defer c.running.Unlock()
	defer catchFault(&err)
	config := c.store.Config()
	d := decideClean(now, config, c.checkDisk(config), c.manual.Load() > 0)
	if mayDelete && d.clean {
		if c.manual.Load() > 0 {
			c.manual.Add(-1)
		}
		if err := c.deleteLogFiles(now, config, d); err != nil {
			return err
		}
	}
	asked := c.queuesOnly.Swap(false)
	if minPhy := c.store.MinPhyOffset(); asked || minPhy > c.cleanedTo {
		if err := c.cleanBelow(minPhy, config); err != nil {
			return err
		}
		c.cleanedTo = minPhy
	}
	c.reportHeld(now, config)
	return nil
}

// diskRatios are the used shares of the file systems of log and queues, 0 to 1; negative if unknown.
type diskRatios struct {
	log, queues float64
}

func (r diskRatios) max() float64 { return max(r.log, r.queues) }

// checkDisk reads how full the disks are and refuses sends, or takes them again, by the warning mark: refusing sends is
// a state of the disk, not of the store (alibaba/rocketmq#331).
func (c *cleanService) checkDisk(config *Config) diskRatios {
	r := diskRatios{
		log:    c.ratio(config.StorePathCommitLog),
		queues: c.ratio(filepath.Join(config.StorePathRootDir, "consumequeue")),
	}
	c.ratios.Store(&r)
	flags := c.store.flags
	full := r.max() > float64(config.DiskSpaceWarningLevelRatio)/100
	switch {
	case full && !flags.isSet(diskFullBit):
		c.logger.Error("the disk is too full, sends are refused", "used_percent", int(100*r.max()), "diskSpaceWarningLevelRatio", config.DiskSpaceWarningLevelRatio)
		flags.set(diskFullBit)
	case !full && flags.isSet(diskFullBit):
		c.logger.Info("the disk has room again, sends are taken", "used_percent", int(100*r.max()))
		flags.clear(diskFullBit)
	}
	return r
}

// ratio asks the nearest directory that exists.
func (c *cleanService) ratio(dir string) float64 {
	for {
		if usage, err := c.fs.Usage(dir); err == nil {
			return usage.Ratio()
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return -1
		}
		dir = parent
	}
}

// cleanDecision is what a round may delete.
type cleanDecision struct {
	clean  bool
	forced bool // regardless of age, of dispatch and of slaves
}

// decideClean is the rule of CleanCommitLogService#deleteExpiredFiles: in the hour, for want of space, or by hand.
// A disk that cannot be read counts as full, as in Java.
func decideClean(now time.Time, c *Config, r diskRatios, manual bool) cleanDecision {
	mark := float64(min(max(c.DiskMaxUsedSpaceRatio, 10), 95)) / 100
	unknown := r.log < 0 || r.queues < 0
	forced := r.max() > float64(c.DiskSpaceCleanForciblyRatio)/100 && c.CleanFileForciblyEnable
	return cleanDecision{
		clean:  isTimeToDelete(now, c.DeleteWhen) || r.max() > mark || unknown || forced || manual,
		forced: forced,
	}
}

// isTimeToDelete is true during the hours of deleteWhen, local time. Source: UtilAll#isItTimeToDo.
func isTimeToDelete(now time.Time, deleteWhen string) bool {
	for part := range strings.SplitSeq(deleteWhen, ";") {
		if hour, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && hour == now.Hour() {
			return true
		}
	}
	return false
}

// deleteLogFiles deletes a batch of log files, oldest first, and stops at the first that must stay.
func (c *cleanService) deleteLogFiles(now time.Time, config *Config, d cleanDecision) error {
	queue := c.store.log.queue
	for n := 0; n < deleteFileBatchMax; n++ {
		files := queue.files()
		if len(files) < 2 || !c.mayDelete(now, config, d, files[0], files[1]) {
			return nil
		}
		if n > 0 && !c.pause(millis(config.DeleteCommitLogFilesInterval)) {
			return nil
		}
		f := files[0]
		path := f.path()
		err := queue.retire(f)
		c.retired(now, f, path)
		if err != nil {
			return err
		}
		c.logger.Info("log file deleted", "file", path, "forced", d.forced)
	}
	return nil
}

// mayDelete judges one file that is not the last. Its age counts from the store time of the first record of the file
// behind it, when it was full; Java goes by the file's modification time, which a copy of the store makes new.
func (c *cleanService) mayDelete(now time.Time, config *Config, d cleanDecision, f, next *MappedFile) bool {
	if d.forced {
		return true
	}
	if c.store.reput.offset.Load() < f.end() {
		return false
	}
	if c.store.retained != nil {
		if lowest, ok := c.store.retained(); ok && f.end() > int64(lowest) {
			return false
		}
	}
	full, ok := c.store.storeTimeOf(PhyOffset(next.base))
	return ok && now.Sub(time.UnixMilli(full)) >= time.Duration(config.FileReservedTime)*time.Hour
}

// cleanBelow deletes queue and index files whose records are gone, and corrects the queues' min offsets.
// Source: CleanConsumeQueueService#deleteExpiredFiles.
func (c *cleanService) cleanBelow(minPhy PhyOffset, config *Config) error {
	for _, q := range c.store.queues.all() {
		for i, f := range q.expired(minPhy) {
			if i > 0 && !c.pause(millis(config.DeleteConsumeQueueFilesInterval)) {
				return nil
			}
			path := f.path()
			err := q.files.retire(f)
			c.retired(c.now(), f, path)
			if err != nil {
				return err
			}
		}
		q.correctMinOffset(minPhy)
		q.dropSamples()
	}
	n, err := c.store.index.deleteExpired(minPhy)
	c.deleted.Add(int64(n))
	return err
}

// expired are the files whose last unit's record is gone, never the last file.
func (q *ConsumeQueue) expired(minPhy PhyOffset) (files []*MappedFile) {
	all := q.files.files()
	for i := 0; i < len(all)-1; i++ {
		sel, ok := all[i].selectAt(all[i].size-consumeQueueUnitSize, consumeQueueUnitSize)
		if !ok {
			break
		}
		live := decodeUnit(sel.Bytes()).isLive(minPhy)
		sel.Release()
		if live {
			break
		}
		files = append(files, all[i])
	}
	return files
}

func (c *cleanService) retired(now time.Time, f *MappedFile, path string) {
	c.deleted.Add(1)
	if f.held() > 0 {
		c.mu.Lock()
		c.held = append(c.held, heldFile{file: f, since: now})
		c.mu.Unlock()
	}
	if c.store.listener.FileDeleted != nil {
		c.store.listener.FileDeleted(path)
	}
}

// reportHeld names deleted files that somebody has been reading for longer than destroyMapedFileIntervalForcibly, where
// Java would unmap them, and again every redeleteHangedFileInterval.
func (c *cleanService) reportHeld(now time.Time, config *Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(h heldFile) bool { return h.file.held() == 0 })
	for i := range c.held {
		h := &c.held[i]
		if now.Sub(h.since) < millis(config.DestroyMapedFileIntervalForcibly) || now.Sub(h.reported) < millis(config.RedeleteHangedFileInterval) {
			continue
		}
		h.reported = now
		c.logger.Warn("a deleted file is still being read, its space is not free yet",
			"file", h.file.path(), "loans", h.file.held(), "for", now.Sub(h.since).Round(time.Second))
	}
}

// pause waits between two deletions; false when the service stops.
func (c *cleanService) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.stopped:
		return false
	}
}

func (c *cleanService) addStats(s *Stats) {
	c.mu.Lock()
	for _, h := range c.held {
		if h.file.held() > 0 {
			s.FilesHeldAfterRetire++
		}
	}
	c.mu.Unlock()
	s.FilesDeleted = c.deleted.Load()
	if r := c.ratios.Load(); r != nil {
		s.CommitLogDiskRatio, s.ConsumeQueueDiskRatio = r.log, r.queues
	}
}
