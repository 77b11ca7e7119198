// Package job runs functions on one member at a time. Run does so at each time of a schedule, Once
// does it once in the ensemble's life, and Reserve reserves a name for a time. It is not a workflow
// engine, and nothing here runs exactly once: a member may die after the work and before it is
// recorded. What is exactly once is what Tick.Commit writes to the tree.
//
//	err := job.Run(ctx, node, "/jobs", job.Job{
//		Name:     "report",
//		Schedule: job.Every(24 * time.Hour), // midnight, UTC
//		Run: func(ctx context.Context, tick *job.Tick) error {
//			return writeReport(ctx, tick.Time)
//		},
//	})
//
// # The tick is the name
//
// A tick is a time of the schedule, in UTC. To run a tick, a member holds the job's lock and writes
// the tick into the job's record, in one transaction that the lock guards. A tick that is not later
// than the last one in the record never begins again. So two members never run one tick side by
// side, whatever their clocks show: a slow clock waits, and a fast one runs its ticks early. A lock
// alone does not do that: if the run is short, the next member gets the lock for the same tick.
//
// If a clock is far ahead, the record has a time of the future, and the job waits for it. History
// shows that time. If it is a mistake, delete the record: the job begins anew.
//
// The members take turns. The one that has run a tick goes to the end of the queue for the lock,
// and the next one waits for the next tick. If that one dies, the tick is late by its session's
// timeout at most.
//
// # At most once, or at least once
//
// A run may be cut short: its member dies, is cut off, or shuts down. Job.Crash says what happens
// to its tick. With AtMostOnce, the zero value, the tick is left as it is. With AtLeastOnce another
// member runs it again, with Tick.Attempt one higher. A run that returns an error while it still
// has the lock has failed. That is recorded, and it is not run again.
//
// The ctx of a run ends before another member can have its lock, so a run that obeys its ctx is
// alone. For what a run has sent elsewhere there are Tick.Token and Tick.Guard, as with a lock.
//
// A member is told of its ticks by the calls of Job.Run. History shows the last ones at a moment.
// There is no sequence of them; a view.View of the directory follows all records.
//
// # Ticks that were missed
//
// Ticks are missed while no member is there, while a run takes longer than the time to the next
// tick, and when a clock is set forward. Job.Missed says whether all of them run or only the
// latest. Job.Within says how late a tick may begin. The first Run of a job writes the time from
// which its ticks count.
//
// # Daylight saving
//
// Schedule.Next gets times in UTC, and its results are compared in UTC. So a schedule that follows
// the local time decides itself what happens on the two days a year that have no such time, or have
// it twice. Every knows only UTC.
//
// # Layout
//
//	Run      <dir>/<name>/ticks  persistent; JSON: the time since which ticks count, the last ticks
//	         <dir>/<name>/lock   a lock.Mutex
//	Once     <path>/done         persistent: the result
//	         <path>/lock         a lock.Mutex
//	Reserve  <path>              a TTL znode: the holder
//
// The znodes above are containers. What is persistent keeps them from being empty, so nothing is
// forgotten unless somebody deletes it.
//
// # Cost
//
// A tick costs four commits: it begins, it ends, and its member leaves the queue and enters it
// again. It is meant for hundreds of jobs that tick every second or less often.
//
// Start reading in run.go; plan.go decides which tick is next.
package job
