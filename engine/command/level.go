package command

import (
	"errors"
	"fmt"
)

// The feature levels of commands and records that this build reads and writes. Package doc says
// what each allows.
//
// A shard's level is part of its state. Nothing above it is proposed, nor written to the image. It
// only rises, by a Raise, once every member reads the next one. So a rolling upgrade never gives a
// member something that it cannot read.
const (
	LevelMin = 1
	LevelMax = 1
	// LevelNext is the level of a build to come. Only tests reach it, with engine.Seams. An expire and
	// a state have one field more at it, so that tests see how a release changes a format.
	LevelNext = LevelMax + 1
)

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
