package replication

import "errors"

// Errors of a running Host. If Propose returns one, the command was certainly not proposed.
var (
	// ErrNoLeader: no leader is known, or the shard is not ready yet.
	ErrNoLeader = errors.New("no leader is known")
	// ErrBusy: a queue of the shard is full. It may have room later.
	ErrBusy = errors.New("shard is busy")
	// ErrTooLarge: the command is empty or longer than CommandMax.
	ErrTooLarge = errors.New("command is too large")
	// ErrClosed: the host is closed, or the shard was never started.
	ErrClosed = errors.New("host is closed")
	// ErrStillRunning: Close stopped waiting.
	ErrStillRunning = errors.New("host did not stop")
	// ErrFailed: the switch of the host's disk is thrown.
	ErrFailed = errors.New("host has failed")
)

// Errors of opening a directory.
var (
	// ErrLocked: the directory is open elsewhere, in another process or by another node of this
	// process.
	ErrLocked = errors.New("directory is in use")
	// ErrIdentity: the identity file is damaged or has an unknown format.
	ErrIdentity = errors.New("identity file cannot be used")
	// ErrLog: the Raft log cannot be opened.
	ErrLog = errors.New("raft log cannot be opened")
	// ErrNotPart: the member of the directory takes no part in a shard, so it cannot go on with it.
	ErrNotPart = errors.New("the member has no part in the shard")
)
