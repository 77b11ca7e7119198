package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// meters count what the engine itself does. The rooms below have their own.
type meters struct {
	leaders   [MaxShards]meter.Counter // new leaders or terms that this node has learned of
	transfers [MaxShards][TransferCauses]meter.Counter
	phases    [phases]atomic.Int64 // how long each took, in nanoseconds; zero: it has not ended
}

// A TransferCause is why this node has asked for a leadership to be transferred.
type TransferCause int

// The causes.
const (
	TransferLag      TransferCause = iota // its replica lags behind the log
	TransferAsked                         // somebody called TransferLeadership
	TransferShare                         // the shard is its share
	TransferShutdown                      // it shuts down
	TransferCauses                        // how many there are
)

// String returns the cause as the metrics name it.
func (c TransferCause) String() string {
	return [...]string{"lag", "asked", "share", "shutdown"}[c]
}

// lookPatience is how long a scrape waits altogether for locks that are busy and for the disk.
// Whatever it does not get in that time is missing from it.
const lookPatience = 50 * time.Millisecond

// lookUntil calls each look until it reports success, or the time has come. A look tries a lock
// once.
func lookUntil(until time.Time, looks []func() bool) {
	for pause := 10 * time.Microsecond; ; pause *= 2 {
		looks = slices.DeleteFunc(looks, func(look func() bool) bool { return look() })
		if len(looks) == 0 || !time.Now().Add(pause).Before(until) {
			return
		}
		time.Sleep(pause)
	}
}

// into returns a look that stores what try finds.
func into[F any](to **F, try func() (F, bool)) func() bool {
	return func() bool {
		f, ok := try()
		if ok {
			*to = &f
		}
		return ok
	}
}
