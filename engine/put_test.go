// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"loopmq/storage"
)

func TestCombineOutcomes(t *testing.T) {
	f := func(flushed, replicated, want storage.PutMessageStatus) {
		t.Helper()
		if got := combine(flushed, replicated); got != want {
			t.Errorf("combine(%s, %s)=%s; want %s", flushed, replicated, got, want)
		}
	}
	f(storage.PutOK, storage.PutOK, storage.PutOK)
	f(storage.FlushDiskTimeout, storage.PutOK, storage.FlushDiskTimeout)
	f(storage.PutOK, storage.FlushSlaveTimeout, storage.FlushSlaveTimeout)
	f(storage.PutOK, storage.SlaveNotAvailable, storage.SlaveNotAvailable)
	f(storage.FlushDiskTimeout, storage.FlushSlaveTimeout, storage.FlushSlaveTimeout)
	f(storage.FlushDiskTimeout, storage.SlaveNotAvailable, storage.SlaveNotAvailable)
	f(storage.ServiceNotAvailable, storage.PutOK, storage.ServiceNotAvailable)
	f(storage.ServiceNotAvailable, storage.FlushSlaveTimeout, storage.ServiceNotAvailable)
	f(storage.FlushDiskTimeout, storage.ServiceNotAvailable, storage.ServiceNotAvailable)
}
