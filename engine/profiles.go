// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	// contentionSecondsDefault and contentionSecondsMax say for how long contention is sampled on request. It is not sampled
	// otherwise: each wait that is, costs some microseconds.
	contentionSecondsDefault = 5
	contentionSecondsMax     = 300
	// mutexFractionDefault samples one contention in as many, blockRateDefault one wait for as many nanoseconds of waiting,
	// and so all that are longer. A broker that stored 200,000 messages a second took no more CPU with either.
	mutexFractionDefault = 100
	blockRateDefault     = 10_000
)

// contentionProfile serves the mutex or the block profile of the time of the request: ?seconds=N (5) samples for so long,
// one in ?rate=N. With ?debug=1 it is text. One request of each kind at a time.
type contentionProfile struct {
	name    string
	rate    int
	setRate func(rate int)
	taken   sync.Mutex
}

func mutexProfile() *contentionProfile {
	return &contentionProfile{name: "mutex", rate: mutexFractionDefault, setRate: func(rate int) { runtime.SetMutexProfileFraction(rate) }}
}

func blockProfile() *contentionProfile {
	return &contentionProfile{name: "block", rate: blockRateDefault, setRate: runtime.SetBlockProfileRate}
}

func (p *contentionProfile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seconds, err := numberOf(r, "seconds", contentionSecondsDefault, contentionSecondsMax)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	rate, err := numberOf(r, "rate", p.rate, 1<<30)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	if !p.taken.TryLock() {
		writeText(w, http.StatusConflict, "another request takes the "+p.name+" profile now")
		return
	}
	defer p.taken.Unlock()
	p.setRate(rate)
	defer p.setRate(0)
	query := r.URL.Query()
	if query.Get("debug") != "" { // as text there are no differences, only what came since the process began
		query.Del("seconds")
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
			return
		}
	} else {
		query.Set("seconds", strconv.Itoa(seconds))
	}
	r = r.Clone(r.Context())
	r.URL.RawQuery, r.Form = query.Encode(), nil
	pprof.Handler(p.name).ServeHTTP(w, r)
}

func numberOf(r *http.Request, key string, byDefault, most int) (int, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s=%s: want 1 to %d", key, shown([]byte(text)), most)
	}
	return n, nil
}
