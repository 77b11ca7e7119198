package main

import (
	"bufio"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of an input and what happens at them.
const (
	ordersMax = 100_000 // more orders are an error: the run would take an hour
	lineMax   = 1 << 20 // bytes; a longer line is an error: the file is something else
	textMax   = 200     // bytes of an id or an account; a longer one is malformed
	// of one order; more is malformed; ordersMax of them fit in an int64
	centsMax = 10_000_000_000_000
)

//go:embed orders.csv
var builtin string

// cents is an amount of money.
type cents int64

func (c cents) String() string {
	sign := ""
	if c < 0 {
		sign, c = "-", -c
	}
	return fmt.Sprintf("%s%d.%02d", sign, int64(c)/100, int64(c)%100)
}

// An order adds an amount, which may be negative, to the balance of an account.
type order struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  cents  `json:"amount"`
}

// A problem is a line that is not an order. It is skipped.
type problem struct {
	line int
	text string
}

// openInput opens a file of orders. An empty name means the built-in file.
func openInput(name string) (io.ReadCloser, error) {
	if name == "" {
		return io.NopCloser(strings.NewReader(builtin)), nil
	}
	return os.Open(name)
}

// readOrders reads lines of the form id,account,amount. It skips blank lines and a first line that
// names the fields; neither is a problem. Each line stands alone: a field in quotes cannot continue
// on the next line.
func readOrders(r io.Reader) (orders []order, problems []problem, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMax)
	first := make(map[string]int) // line of the first order with an id
	n := 0
	for lines.Scan() {
		n++
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" || n == 1 && isHeader(line) {
			continue
		}
		o, err := parseOrder(line)
		switch before := first[o.ID]; {
		case err != nil:
			problems = append(problems, problem{n, err.Error()})
		case before > 0:
			problems = append(problems, problem{n, fmt.Sprintf("id %q was on line %d already", o.ID, before)})
		case len(orders) == ordersMax:
			return nil, nil, fmt.Errorf("more than %d orders", ordersMax)
		default:
			first[o.ID] = n
			orders = append(orders, o)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, nil, fmt.Errorf("line %d is longer than %d bytes: this is not a file of orders", n+1, lineMax)
	}
	return orders, problems, lines.Err()
}

func isHeader(line string) bool {
	fields := strings.Split(strings.ToLower(line), ",")
	return utf8.ValidString(line) && len(fields) == 3 && strings.TrimSpace(fields[0]) == "id" && strings.TrimSpace(fields[2]) == "amount"
}

func parseOrder(line string) (order, error) {
	if !utf8.ValidString(line) {
		return order{}, errors.New("it is not UTF-8") // it would come back different from JSON
	}
	r := csv.NewReader(strings.NewReader(line))
	r.FieldsPerRecord = -1
	fields, err := r.Read()
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		return order{}, syntax.Err
	}
	if err != nil {
		return order{}, err
	}
	if len(fields) != 3 {
		return order{}, fmt.Errorf("want the 3 fields id,account,amount, found %d", len(fields))
	}
	o := order{ID: strings.TrimSpace(fields[0]), Account: strings.TrimSpace(fields[1])}
	switch {
	case o.ID == "":
		return order{}, errors.New("the id is empty")
	case o.Account == "":
		return order{}, errors.New("the account is empty")
	case len(o.ID) > textMax || len(o.Account) > textMax:
		return order{}, fmt.Errorf("id and account have at most %d bytes", textMax)
	}
	o.Amount, err = parseCents(strings.TrimSpace(fields[2]))
	return o, err
}

// parseCents reads a decimal number with at most two places, exactly.
func parseCents(s string) (cents, error) {
	digits, negative := s, false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		digits, negative = s[1:], s[0] == '-'
	}
	whole, places, point := strings.Cut(digits, ".")
	if whole == "" || point && (places == "" || len(places) > 2) || strings.Trim(whole+places, "0123456789") != "" {
		return 0, fmt.Errorf("amount %.40q is not a number with at most two decimals", s)
	}
	n, err := strconv.ParseInt(whole+(places + "00")[:2], 10, 64)
	if err != nil || n > centsMax {
		return 0, fmt.Errorf("amount %.40q is more than %v", s, cents(centsMax))
	}
	if negative {
		n = -n
	}
	return cents(n), nil
}

// balances returns the balances after a plain run over the orders.
func balances(orders []order) map[string]cents {
	sums := make(map[string]cents)
	for _, o := range orders {
		sums[o.Account] += o.Amount
	}
	return sums
}
