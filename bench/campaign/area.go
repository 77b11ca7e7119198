package campaign

import (
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/engine"
)

// An area is the part of the tree below one first component of a path. Everything in an area is on
// one shard, so its changes have one order. The workload uses one area on each shard.

// homeShard is the shard on which sessions live and end.
const homeShard = 1

// areasOf returns an area for each of so many shards, in the shards' order.
func areasOf(shards int) []string {
	areas := make([]string, shards)
	for i, found := 0, 0; found < shards; i++ {
		area := fmt.Sprintf("/area%d", i)
		if at := &areas[placeOf(area, shards)]; *at == "" {
			*at = area
			found++
		}
	}
	return areas
}

// placeOf returns the place of a path's shard among so many shards.
func placeOf(path string, shards int) int { return int(engine.ShardOf(path, shards)) - 1 }

// areaOf returns the area of a path.
func areaOf(path string) string {
	area, _ := apart(path)
	return area
}

// inArea returns the rest of a path within its area.
func inArea(path string) string {
	_, rest := apart(path)
	return rest
}

func apart(path string) (area, rest string) {
	if at := strings.IndexByte(path[1:], '/'); at >= 0 {
		return path[:1+at], path[1+at:]
	}
	return path, ""
}
