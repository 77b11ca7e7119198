// Package schedule makes a backup of an ensemble from time to time, and deletes old ones.
//
//	s, err := schedule.New(node, schedule.Config{Dir: "/backups/orders"})
//	if err != nil {
//		return err
//	}
//	go s.Run(ctx)
//
// Every member runs it. At each multiple of Config.Every, one of them makes the backup, and not
// always the same one. Members that lead wait for half a minute, so a follower does it if there is
// one that can. If nobody ran for some time, one backup makes up for all that were missed.
//
// Dir is a directory on the member. Best it is one volume that all members share and that does not
// fail with them. If each member has a directory of its own, each has some of the backups.
//
// # What happens to files
//
// A backup is made by backup.SaveNew and has a name such as
// vivarium-0f3a9c51-20261126T160000Z-2.backup: of which ensemble it is, by the beginning of the
// lineage, when it was made, in UTC, and by which member. So several ensembles may share a
// directory. What has that name already is not replaced; the backup then fails. Old ones are deleted only after the new one was read
// again. So the newest good one always stays. Config.Keep says which others do. What counts are the
// last hours, days and weeks that have a backup, whatever the present time is.
//
// Files are deleted only if they have such a name and are backups of the same lineage.
// Leftovers with such a name and ".tmp-" are deleted too, if they are a day older than the new
// backup. A backup from later than the new one stays, because one of the two clocks is wrong.
// Everything else in the directory is left alone.
//
// # When something is wrong
//
// A failure is logged and counted, and tried again after five minutes, or at once by another
// member. Nothing is deleted meanwhile: not to make room on a full disk either. If a disk hangs,
// so does the schedule of all members: be alerted of the age of the last backup, which is among
// the Samples.
//
// A record of a backup that is more than five seconds in the future is refused, also when its time
// has come, and logged: clocks differ. The one before it counts. So a wrong clock causes some backups
// too many and none too few. A member makes at most two in the time of Every.
//
// # Layout
//
//	/zookeeper/vivarium/backup/lock  a lock.Mutex
//	/zookeeper/vivarium/backup/last  JSON: the last backup
//
// Both are closed to the clients of gateways, whatever ACLs say, except to the super identity. So is
// a quota upon them. They have room in a tree that is full.
package schedule
