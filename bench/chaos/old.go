//go:build unix && member

package main

import (
	"fmt"
	"os"

	"github.com/vivarium-go/vivarium/engine"
)

// main is the program of a member alone, for upgrade.go. By itself it says its level.
func main() {
	if os.Getenv(memberVariable) == "" {
		fmt.Println(engine.LevelMax)
		return
	}
	runMember()
}
