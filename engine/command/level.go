package command

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/tree"
)

// The feature levels of commands and records that this build reads and writes. Package doc says
// what each allows.
//
// A shard's level is part of its state. Nothing above it is proposed, nor written to the image. It
// only rises, by a Raise, once every member reads the next one. So a rolling upgrade never gives a
// member something that it cannot read.
const (
	LevelMin = 1
	LevelMax = 5
)

const (
	// LevelSchemes is the level from which an origin's record has the member's ACL schemes, and the
	// schemes in force are those that all members have.
	LevelSchemes = 2
	// LevelPzxid is the level from which a create below a full counter changes Pzxid.
	LevelPzxid = 2
	// LevelMembers is the level from which the home shard has the table of members, and with it the
	// ensemble's lineage.
	LevelMembers = 3
	// LevelSteps is the level from which a transaction may check an mzxid, add to a number and
	// ensure a container.
	LevelSteps = 4
	// LevelSeed is the level from which a new ensemble may be loaded from a backup. A shard's state
	// says how far that is.
	LevelSeed = 5
)

// OpLevel returns the level from which an operation of a transaction is allowed.
func OpLevel(k tree.OpKind) uint32 {
	switch k {
	case tree.KindCheckMzxid, tree.KindAdd, tree.KindEnsure:
		return LevelSteps
	}
	return LevelMin
}

// ErrLevel says that the ensemble is at a feature level that this build does not read, or that its
// config wants to hold it below.
var ErrLevel = errors.New("another feature level")

// CheckLevel returns ErrLevel with both sides and what to do, if a build that reads the levels up
// to highest cannot work at a level.
func CheckLevel(level, highest uint32) error {
	switch {
	case level > highest:
		return fmt.Errorf("%w: the ensemble is at level %d and this member is limited to level %d: start a build that reads level %d, without a lower Config.HoldLevel", ErrLevel, level, highest, level)
	case level < LevelMin:
		return fmt.Errorf("%w: level %d, this build reads %d to %d: start an older build, which raises the level", ErrLevel, level, LevelMin, LevelMax)
	}
	return nil
}
