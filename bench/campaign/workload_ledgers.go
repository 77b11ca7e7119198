package campaign

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

// numberStep creates a sequential znode. All those of an area have one parent, so that a number
// given twice, a create applied twice or a lost number would show.
func numberStep(_ context.Context, c *client) {
	c.do(Request{Call: callCreate, Path: c.area() + numbersPath + "/n-", Data: c.next(), Mode: int(embed.Sequential), Within: c.within()})
}

// payStep moves one from one account to another.
func payStep(_ context.Context, c *client) {
	from := c.rng.IntN(accounts)
	to := (from + 1 + c.rng.IntN(accounts-1)) % accounts
	c.do(Request{Call: callPay, Path: c.area() + paidPath + "/p-", Data: fmt.Sprintf("%s %d %d", c.next(), from, to), Within: c.within()})
}
