// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"

	"go.uber.org/goleak"
)

// ants, gnet's worker pool, keeps two goroutines for the life of the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}
