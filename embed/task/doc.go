// Package task has queues of tasks that wait for somebody to work on them. A task that is claimed
// is worked on at least once (Claim), a task that is taken at most once (Take). It is for tasks,
// not for streams: up to about 100,000 may wait, at half a kilobyte each in the memory of every
// member.
//
//	queue := task.New(session, "/queues/mails", task.Options{})
//	_, err := queue.Put(ctx, []byte("hello"), task.PutOptions{})
//
//	work := func(ctx context.Context, t *task.Task) error {
//		return send(ctx, t.Data()) // nil finishes the task, an error retries it later
//	}
//	err = task.Work(ctx, node, "/queues/mails", task.Options{}, work)
//
// # At least once
//
// A claim is an ephemeral beside the task, created in one transaction that checks that the task is
// still there. So no task has two claims, and no claim is left without its task. A claim ends on
// its own node before anybody else can claim the task. It is lost with its session; then the next
// caller claims the task. So the work may be done more than once: after a loss, its first worker
// may have done it. What is done exactly once is what Finish writes in the transaction that removes
// the task.
//
// Tasks begin in order; they need not end in it. The order is that of the names, see Layout.
// Callers of several Queues, those of several calls of Work too, compete for the first tasks. While
// they do, each tries one of the first 128 tasks of the same priority, or of those that are due. So
// a task may begin after some that were put later, but before all of a later priority. A task that
// is retried keeps its place. A claim that was lost counts as an attempt too. So Options.Attempts
// also stops a task that kills its workers. Such a task, and one that cannot be decoded, moves to
// the dead ones. Nothing is ever dropped. A task that may not be read, or cannot be moved, is logged
// and passed over, and stops no other.
//
// Claim, Take and Work wait for a task. There is no sequence of the tasks that wait: by the time
// that a loop sees one, somebody else may have it. Whoever has a Task is told by Task.Context that
// the claim has ended.
//
// # Beside clients of ZooKeeper
//
// The znodes are those of kazoo's and Curator's queues, so their clients can put and take through
// the gateway:
//
//	Locking   <path>/entries/entry-<3 digits>-<10 digits>  raw     claims: <path>/taken
//	Entries   <path>/entry-<3 digits>-<10 digits>          raw     claims: Options.LockPath
//	Plain     <path>/queue-<10 digits>                     framed  the same
//	Priority  <path>/queue-<0 or 1><8 hex><10 digits>      framed  the same
//	Delay     <path>/queue-|<hex of ms>|<10 digits>        framed  the same
//	Simple    <path>/qn-<10 digits>                        raw     the same
//
// Curator's consumers respect the claims if they have the same lockPath, kazoo's LockingQueue
// always does, and the others never do. A consumer of Curator or kazoo that has lost its claim may
// still remove the task from under the next one. Then Finish says embed.ErrNoNode, and the work may
// have been done twice.
//
// What is kept besides is JSON at <path>/tries and what is dead at <path>/dead, or at <path>-tries
// and <path>-dead for the layouts other than Locking. If a client of ZooKeeper removes a task that
// was retried, whoever waits for tasks deletes its tries within minutes. In an ensemble with
// several shards all of them have to be on one, so there the path has at least two components.
//
// # Cost
//
// Put, Claim and Finish are a commit each. The first Claim of a Queue costs one or two more. A
// claim that is refused because another caller was faster is a commit too. The callers of one Queue
// do not compete: each tries another task. Several Queues do, and then each chooses at random from
// more of the first tasks. With 64 calls of Work on three members, one claim was refused for each
// task; if all tried the first task, it was 42. All callers that wait try a task that is put into
// an empty queue. A claim looks at all tasks before its own, so many that are claimed or to be
// retried later slow it down.
//
// Start reading in queue.go; lookout.go is how callers find a task.
package task
