// Package sessions opens sessions for what must outlive a session: one after the other, until an
// error says that no further attempt can succeed.
package sessions
