package wire

// Perms is what an entry of an ACL allows: a sum of the constants. ZooKeeper keeps other bits as
// they are.
type Perms int32

// The permissions.
const (
	PermRead   Perms = 1
	PermWrite  Perms = 2
	PermCreate Perms = 4
	PermDelete Perms = 8
	PermAdmin  Perms = 16
	PermAll    Perms = 31
)

// ACL is one entry of a znode's access list. Scheme and ID may be Null.
type ACL struct {
	Perms  Perms
	Scheme string
	ID     string
}

func (c *coder) acl(v *[]ACL) {
	list(c, v, 12)
	for i := range *v {
		a := &(*v)[i]
		i32(c, &a.Perms)
		c.text(&a.Scheme)
		c.text(&a.ID)
	}
}

// User is one identity of a connection, as whoAmI shows it.
type User struct {
	Scheme string
	Name   string
}

func (c *coder) users(v *[]User) {
	list(c, v, 8)
	for i := range *v {
		u := &(*v)[i]
		c.text(&u.Scheme)
		c.text(&u.Name)
	}
}
