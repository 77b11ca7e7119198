package membersflag

import (
	"flag"
	"fmt"
)

// Churn says that members come and go.
var Churn bool

// Define defines the flag. A test package calls it whose tests bear that members come and go.
func Define() {
	flag.Func("members", `with "churn", members come and go while a test uses its ensemble`, func(how string) error {
		if how != "churn" {
			return fmt.Errorf("want churn")
		}
		Churn = true
		return nil
	})
}
