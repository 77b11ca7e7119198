// Package sessionsflag defines the flag -sessions of this module's tests. With -sessions client,
// Ensemble.Session of package embedtest returns sessions of package embed/client, each connected to
// the gateway of the member that it is asked of. Ensemble.Opener returns what opens them.
package sessionsflag
