// SPDX-License-Identifier: Apache-2.0

package storage

func (s *MessageStore) recover(clean bool) error { return nil }
