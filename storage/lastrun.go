// SPDX-License-Identifier: Apache-2.0

package storage

// LastRun says how the last run on this store ended: clean, by loopmq or RocketMQ, when all of its log was on disk. others
// says that not all of the log is loopmq's work: a RocketMQ broker has written to it since.
func (s *MessageStore) LastRun() (clean, others bool) { return s.clean, s.others }

// recoverAndJudge recovers the store and looks for traces of another broker: the times of the checkpoint have moved
// without the offset beside them, or a run that ended clean left more or less log than that offset says.
func (s *MessageStore) recoverAndJudge() error {
	restart, ok := s.checkpoint.restart()
	moved := !ok && s.checkpoint.times() != checkpointTimes{}
	if err := s.recover(s.clean); err != nil {
		return err
	}
	end := s.MaxPhyOffset()
	s.others = end > s.MinPhyOffset() && (moved || s.clean && ok && restart != end)
	return nil
}
