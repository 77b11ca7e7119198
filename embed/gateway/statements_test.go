package gateway

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A statement is one of the catalogue of ZooKeeper's behaviour. The list has its sections about
// clients: 3 operations, 5 sessions, 6 watches, 10 the wire, 11 four-letter words. Each statement
// names the tests that show it, or says why it does not hold here. Some do both.
type statement struct {
	number, words string
	shown         string // names of tests; a test of another room has the room's folder before it
	otherwise     string // why it does not hold here, or belongs to nobody here
}

const (
	noTTLSwitch     = "TTL modes are always on"
	noLocalSessions = "there are no local sessions: every one is the ensemble's"
	noReadOnly      = "there is no read-only mode: a member without a quorum ends its connections"
	noReconfig      = "members are fixed: it answers as where it is turned off"
	noAdminServer   = "there is no HTTP server: who embeds a node has Node.Status"
	ofTheClient     = "is the client library's"
)

var statements = []statement{
	{"3", "numbers and bodies of the ops", "internal/wire.TestRecordsFollowTheCatalogue internal/wire.TestNoRecordIsForgotten internal/wire.TestKnownOps", ""},
	{"3.1.1", "flags from 0 to 6", "TestOps", ""},
	{"3.1.2", "Unimplemented where TTLs are off", "", noTTLSwitch},
	{"3.1.3", "range of a TTL", "TestOps", ""},
	{"3.1.4", "session and owner", "TestNothingBehindWhatWasRefused engine.TestFormerMemberOfARemoteSessionIsLate", noLocalSessions},
	{"3.1.5", "a slash and no NUL", "TestOps", ""},
	{"3.1.6", "ACL before parent", "TestOps", ""},
	{"3.1.7", "the parent exists", "TestOps", ""},
	{"3.1.8", "Create on the parent, before NodeExists", "TestOps TestPermissions", ""},
	{"3.1.9", "the final path is valid", "TestOps TestChildrenOfEveryMode", ""},
	{"3.1.10", "NodeExists", "TestOps", ""},
	{"3.1.11", "no children of ephemerals; containers have any", "TestOps TestChildrenOfEveryMode", ""},
	{"3.1.12", "quota", "TestQuota tree.TestScripts", ""},
	{"3.1 effects", "Stat and final path", "TestAnswers", ""},
	{"3.1 notes", "op and flags", "TestOps", "an op and flags that say different things are refused: see doc.go"},
	{"3.1 notes", "null data and empty data; no ACL is inherited; no parent is made", "TestAnswers TestOps", ""},
	{"3.1 notes", "no size of data but the frame's", "TestLongFrames TestDataTooLarge", "the node's MaxDataSize is a limit too, by default larger than a frame"},
	{"3.2", "delete: order of its checks, list of the parent", "TestOps TestPermissions", ""},
	{"3.3", "deleteContainer", "TestGoldenUnknownOp", "is nobody's but the reaper's: Unimplemented"},
	{"3.4", "exists: checks, and a watch also of what is missing", "TestOps TestReadsArm TestReadsThatLeaveNoWatch", ""},
	{"3.5", "getData", "TestOps TestReadsArm TestReadsThatLeaveNoWatch", ""},
	{"3.6", "getChildren and getChildren2", "TestOps TestReadsArm TestReadsThatLeaveNoWatch TestAnswers", ""},
	{"3.7", "setData: order of its checks", "TestOps TestPermissions TestQuota", ""},
	{"3.8", "getACL: Read or Admin, masked digests", "TestPermissions TestAuth", ""},
	{"3.9", "setACL: order of its checks; alone; tells nobody", "TestOps TestPermissions TestMulti TestMultiTells", ""},
	{"3.10", "getAllChildrenNumber counts all below", "TestAnswers TestPermissions", ""},
	{"3.11", "getEphemerals: own ones, text of the prefix", "TestAnswers", ""},
	{"3.12", "sync", "TestOps TestAnswers TestPermissions embed.TestGuarantee_LinearizableSync", "is a real barrier: see doc.go"},
	{"3.13", "check alone is no op; its checks in a multi", "TestGoldenUnknownOp TestPermissions TestMulti", ""},
	{"3.14", "ping", "TestGoldenConversation TestWhatKeepsASessionAlive TestZxidsOfAnswers", ""},
	{"3.15", "what is no multi at all", "TestMulti internal/wire.TestMultiOfWhatItMayNotHoldIsMalformed", ""},
	{"3.15", "what creates become in a multi", "TestMulti", ""},
	{"3.15.1", "each operation sees those before it", "TestMulti", ""},
	{"3.15.2", "all or nothing, one zxid", "TestMulti TestMultiTells embed.TestGuarantee_Atomic", ""},
	{"3.15.3", "results of success", "TestMulti TestGoldenConversation internal/wire.TestMultiAnswersEveryStatAsCreate2", ""},
	{"3.15.4", "results of failure", "TestMulti TestGoldenConversation", ""},
	{"3.15.5", "the first code that is not 0", "", ofTheClient},
	{"3.15.6", "empty multi", "TestMulti", "takes no zxid, as all that changes nothing"},
	{"3.15.7", "SessionMoved ends the connection", "TestResume TestNothingBehindWhatWasRefused", ""},
	{"3.15.8", "who is told of a multi", "TestMultiTells", ""},
	{"3.15.9", "ephemeral of a local session", "", noLocalSessions},
	{"3.16", "multiRead: each alone, no watches", "TestMultiRead TestPermissions TestReadsThatLeaveNoWatch", ""},
	{"3.17", "addWatch: no checks but the mode's, twice is once", "TestOps TestAddAndRemoveWatches TestPermissions watch.TestClient_AnyPath watch.TestClient_ModesAreASet", ""},
	{"3.18", "checkWatches, removeWatches", "TestOps TestAddAndRemoveWatches watch.TestClient_RemoveByType watch.TestClient_RemoveAny", ""},
	{"3.19", "setWatches, setWatches2: 6.6", "TestSetWatches", ""},
	{"3.20", "reconfig", "TestOps", noReconfig},
	{"3.21", "auth: zxid 0, cumulative, the connection's, failure ends the connection only", "TestAuth TestAuthFails TestAuthThatFailsKeepsTheSession TestResume TestAuthThatIsLostEndsTheConnection", "it is answered in its turn, and identities are bounded: see doc.go"},
	{"3.22", "sasl without a set-up", "TestAnswers", "there is no SASL"},
	{"3.23", "whoAmI", "TestAuth TestX509 TestResume", ""},
	{"3.24", "closeSession", "TestCloseSession TestCloseTellsOwnWatches TestGoldenConversation", ""},

	{"5.1.1", "first frame; who has seen more is sent away", "TestHandshakeMalformed TestHandshakeOfAClientThatHasSeenMore", noReadOnly},
	{"5.1.2", "protocol version and a new session's password are ignored", "TestHandshakeOpensASession TestGoldenConversation", ""},
	{"5.1.3", "the timeout is clamped", "TestHandshakeOpensASession TestResume", ""},
	{"5.1.4", "0 is a new session, which is applied before the answer", "TestHandshakeOpensASession", "the id is the zxid of the transaction"},
	{"5.1.5", "requests behind the first frame", "TestHandshakeWithRequestsBehindIt", ""},
	{"5.1.6", "expired, or wrong password", "TestHandshakeOfAnExpiredSession TestResumeIsRefused TestResume", ""},
	{"5.2.1", "ids", "TestHandshakeOpensASession", "an id is a zxid, never used again"},
	{"5.2.2", "passwords", "TestHandshakeOpensASession TestResumeIsRefused", "a password is random and kept: it is worth something"},
	{"5.2.3", "0 is no session to resume", "TestHandshakeOpensASession", ""},
	{"5.3.1", "a resume here ends the connection before", "TestResume TestResumeIsRefused", "not before the password is verified: nobody is cut off by a stranger"},
	{"5.3.2", "the timeout is agreed on anew", "TestResume", "and kept"},
	{"5.3.3", "the former member's connection", "TestResume engine.TestRemoteSessionMoves clienttest.TestMemberIsKilled", "ends as soon as its member knows, reads included"},
	{"5.3.4", "watches and identities do not move", "TestResume TestSetWatches", ""},
	{"5.4.1", "what keeps a session alive", "TestWhatKeepsASessionAlive engine.TestIdleRemoteSessionsCostBeatsOnly", ""},
	{"5.4.2", "when it expires", "TestSilentClient engine.TestRemoteSessionIsClosedForItsSilence", "silence is counted by the member that has the connection, in ticks: see engine/remote.go"},
	{"5.4.3", "expiry is a transaction", "TestSilentClient engine.TestRemoteSessionIsClosedForItsSilence engine.TestSilenceIsToldAsExpiry", ""},
	{"5.4.4", "a full timeout after a change of leader or a restart", "engine.TestRestartKeepsRemoteSessions engine.TestRemoteSessionsOnFailingMembers", "a change of leader is nothing to a session; its member's restart is"},
	{"5.4.5", "an expired session's connection ends", "TestSilentClient TestNothingBehindWhatWasRefused", ""},
	{"5.4.6", "idle connections end", "TestSilentClient TestHandshakeMalformed", ""},
	{"5.5", "close is one transaction", "TestCloseIsOneTransaction TestCloseSession", "with several shards one on each: see package engine"},
	{"5.6", "local sessions", "", noLocalSessions},
	{"5.7", "read-only mode", "TestReadOnlyClient TestMemberCutOff", noReadOnly},
	{"5.8", "limits of connections, back-pressure", "TestConnectionLimits TestPipelinedRequestsAreInOrder TestSlowReader", ""},
	{"5.9", "the Java client's times", "", ofTheClient},

	{"6.1.1", "watches are the connection's, and end with it without events", "TestResume watch.TestClient_EndTakesAllWatches", ""},
	{"6.1.2", "which requests leave which", "TestReadsArm TestAddAndRemoveWatches watch.TestClient_TriggerMatrix", ""},
	{"6.1.3", "twice is once; modes are beside each other", "watch.TestClient_ModesAreASet TestAddAndRemoveWatches", ""},
	{"6.2", "what fires which", "watch.TestClient_TriggerMatrix engine.TestRemoteWatches_CausesOfTheTree TestReadsArm", ""},
	{"6.2.1", "recursive ones have no lists of children, persistent ones no children's data", "watch.TestClient_TriggerMatrix TestAddAndRemoveWatches", ""},
	{"6.2.2", "a child's data, a parent's data", "watch.TestClient_TriggerMatrix", ""},
	{"6.2.3", "the root as a parent", "watch.TestClient_RootIsTheParent", ""},
	{"6.2.4", "only exists leaves one of what is missing", "TestReadsArm engine.TestRemoteWatches_WhichReadsArm", ""},
	{"6.3.1", "one event for a cause and a table", "watch.TestClient_OneEventForACauseAndATable watch.FuzzClient", ""},
	{"6.3.2", "a delete is told once", "watch.TestClient_DeleteIsToldOnce TestReadsArm", ""},
	{"6.3.3", "the parent's event is another, and later", "watch.TestClient_TheParentsEventComesAfter TestReadsArm", ""},
	{"6.3.4", "who of the client is told", "", ofTheClient},
	{"6.4.1", "events before the answers that show them, the own before the own", "TestEventsAndAnswersAreInOrder TestGoldenWatches TestCloseTellsOwnWatches watch.TestClient_EventsBeforeWhatIsRead", ""},
	{"6.4.2", "in the order of zxids, in a multi of operations", "TestMultiTells watch.TestClient_OrderIsThatOfTheChanges", ""},
	{"6.4.3", "no order among connections", "", "promises nothing"},
	{"6.5", "frame of an event", "TestGoldenWatches TestMultiTells TestCloseIsOneTransaction", ""},
	{"6.6", "setWatches: the table", "TestSetWatches watch.TestClient_SetWatches engine.TestRemoteWatches_Reset TestGoldenWatches", "with several shards all that could have changed is told"},
	{"6.6.1", "in order, before the answer, zxid -1, whoever may read", "watch.TestClient_SetWatches watch.TestClient_SetWatchesInOrder TestSetWatches", "a change that comes in the midst of a long request is told in between, with its zxid"},
	{"6.6.2", "no checks of paths", "TestSetWatches watch.TestClient_AnyPath", ""},
	{"6.6.3", "what the lists are of", "", ofTheClient},
	{"6.6.4", "any xid", "TestGoldenWatches TestXidsAreSentBack", ""},
	{"6.6.5", "created and deleted meanwhile is not noticed", "watch.TestClient_SetWatches", ""},
	{"6.7.1", "no event of a removal", "watch.TestClient_RemoveByType TestAddAndRemoveWatches", ""},
	{"6.7.2", "what the Java client sends", "", ofTheClient},
	{"6.8", "who is told, by the list of the moment; used up in silence", "TestWatchesAskForPermission watch.TestClient_ACLs watch.TestClient_ACLOfTheMoment engine.TestRemoteWatches_AreToldWhatTheyMayRead", ""},
	{"6.9", "the other manager of watches", "", "there is none"},
	{"6.10", "constants", "internal/wire.TestRecordsFollowTheCatalogue TestGoldenWatches", "states but 3 are the client library's"},

	{"10.1", "frames and their limit, which answers have not", "TestFrameSize TestLongFrames TestMalformedRequests internal/wire.TestFramesHaveALimit", ""},
	{"10.2", "primitives", "internal/wire.TestLeniencesOfTheEncoding internal/wire.TestRecordsFollowTheCatalogue internal/wire.TestGoldenFramesAreWrittenAndRead internal/wire.TestMalformedRecordsAreErrors", ""},
	{"10.3", "connect; old clients", "TestHandshakeOfOldClients internal/wire.TestOldClientsGetNoReadOnly TestGoldenConversation", ""},
	{"10.4", "headers: xids, zxids", "TestXidsAreSentBack TestZxidsOfAnswers TestAnswers TestAuth TestGoldenUnknownOp", "a write that fails uses no zxid: see doc.go"},
	{"10.5", "records", "internal/wire.TestRecordsFollowTheCatalogue internal/wire.FuzzRequest", ""},
	{"10.6", "words come first, and half a connection is enough", "TestWords TestHandshakeMalformed internal/wire.TestFourLetterWords", ""},
	{"10.7", "malformed input", "TestHandshakeMalformed TestMalformedRequests TestGoldenUnknownOp FuzzConnection TestSoak", ""},

	{"11.1", "the list of words that are answered", "TestWordsOnTheList", ""},
	{"11.1", "a member that does not serve", "TestMemberCutOff", ""},
	{"11.1 ruok", "", "TestWords TestMemberCutOff", ""},
	{"11.1 srvr", "", "TestWords TestWordsOfAnEnsemble", ""},
	{"11.1 stat", "", "TestWords", ""},
	{"11.1 cons", "", "TestWords TestLastOps", ""},
	{"11.1 conf", "", "TestWords TestWordsOfAnEnsemble", "it has no keys of ZooKeeper's elections"},
	{"11.1 crst, srst", "", "TestWords TestWordsOfAnEnsemble", ""},
	{"11.1 dump", "", "TestWords", "as a follower's: see doc.go"},
	{"11.1 envi", "", "TestWords", "it has no keys of Java's"},
	{"11.1 dirs", "", "TestWords", ""},
	{"11.1 isro", "", "TestWords TestMemberCutOff", ""},
	{"11.1 wchs, wchp, wchc", "", "TestWords TestAddAndRemoveWatches", ""},
	{"11.1 mntr", "", "TestWords TestWordsOfAnEnsemble", ""},
	{"11.1 gtmk, stmk, hash", "TestWords", "TestWordsOnTheList", "the trace mask cannot be set, and there is no digest of the tree"},
	{"11.1.1", "what counts as watched", "TestAddAndRemoveWatches watch.TestClient_Counts", ""},
	{"11.1.2", "names of the last op", "TestLastOps", ""},
	{"11.1.3", "keys of mntr", "TestWords TestWordsOfAnEnsemble", "those that are not there are in doc.go"},
	{"11.2", "AdminServer", "", noAdminServer},
}

// Every statement names existing tests, or a reason.
func TestStatements(t *testing.T) {
	tests := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for room, dir := range map[string]string{
		"": ".", "clienttest.": "clienttest", "embed.": "..", "internal/wire.": "../../internal/wire",
		"engine.": "../../engine", "tree.": "../../tree", "watch.": "../../watch",
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				tests[room+m[1]] = true
			}
		}
	}
	for _, s := range statements {
		names := strings.Fields(s.shown)
		if len(names) == 0 && s.otherwise == "" {
			t.Errorf("%s (%s) has neither a test nor a reason", s.number, s.words)
		}
		for _, name := range names {
			if !tests[name] {
				t.Errorf("%s (%s): there is no %s", s.number, s.words, name)
			}
		}
	}
}
