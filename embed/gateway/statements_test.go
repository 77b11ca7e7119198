package gateway

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A statement is one of the catalogue of ZooKeeper's behaviour. The list has its sections about
// clients: 3 operations, 5 sessions, 6 watches, 10 the wire, 11 four-letter words. Each statement
// names the tests that show it, or says why it does not hold here. Some do both.
//
// The catalogue itself is not in this repository. A number in the comment of a test, such as 11.1,
// belongs to a statement here.
type statement struct {
	number, words string
	shown         string // names of tests; those in or below another folder have its name before them
	otherwise     string // why it does not hold here, or belongs to nobody here
}

const (
	noTTLSwitch     = "TTL modes are always on"
	noLocalSessions = "there are no local sessions: all sessions belong to the ensemble"
	ofReadOnly      = "the mode is off by default, as in ZooKeeper: docs/zookeeper-clients.md has the differences"
	otherReconfig   = "it removes members and lets learners vote, and adds nobody: see doc.go"
	ofAdminServer   = "package admin answers its commands, if it is told to: docs/admin.md has the differences"
	ofTheClient     = "this is the client library's part"
)

var statements = []statement{
	{"3", "numbers and bodies of the ops", "internal/wire.TestRecordsFollowTheCatalogue internal/wire.TestNoRecordIsForgotten internal/wire.TestKnownOps", ""},
	{"3.1.1", "flags from 0 to 6", "TestOps", ""},
	{"3.1.2", "Unimplemented where TTLs are off", "", noTTLSwitch},
	{"3.1.3", "range of a TTL", "TestOps", ""},
	{"3.1.4", "session and owner", "TestNothingBehindARefusedWrite engine.TestFormerMemberOfARemoteSessionIsLate", noLocalSessions},
	{"3.1.5", "a slash and no NUL", "TestOps", ""},
	{"3.1.6", "ACL before parent", "TestOps", ""},
	{"3.1.7", "the parent exists", "TestOps", ""},
	{"3.1.8", "Create on the parent, before NodeExists", "TestOps TestPermissions", ""},
	{"3.1.9", "the final path is valid", "TestOps TestChildrenOfEveryMode", ""},
	{"3.1.10", "NodeExists", "TestOps", ""},
	{"3.1.11", "no children of ephemerals; containers have any", "TestOps TestChildrenOfEveryMode", ""},
	{"3.1.12", "quota", "TestQuota tree.TestScripts", ""},
	{"3.1 effects", "Stat and final path", "TestAnswers", ""},
	{"3.1 notes", "op and flags", "TestOps", "an op and flags that contradict each other are refused: see doc.go"},
	{"3.1 notes", "null data and empty data; no ACL is inherited; no parent is made", "TestAnswers TestOps", ""},
	{"3.1 notes", "only the frame bounds the data", "TestLongFrames TestDataTooLarge", "the node's MaxDataSize is a limit too, by default larger than a frame"},
	{"3.2", "delete: order of its checks, list of the parent", "TestOps TestPermissions", ""},
	{"3.3", "deleteContainer", "TestGoldenUnknownOp", "only the reaper may use it: Unimplemented"},
	{"3.4", "exists: checks, and a watch even of a missing znode", "TestOps TestReadsArm TestReadsThatLeaveNoWatch", ""},
	{"3.5", "getData", "TestOps TestReadsArm TestReadsThatLeaveNoWatch", ""},
	{"3.6", "getChildren and getChildren2", "TestOps TestReadsArm TestReadsThatLeaveNoWatch TestAnswers", ""},
	{"3.7", "setData: order of its checks", "TestOps TestPermissions TestQuota", ""},
	{"3.8", "getACL: Read or Admin, masked digests", "TestPermissions TestAuth", ""},
	{"3.9", "setACL: order of its checks; not in a multi; fires no watch", "TestOps TestPermissions TestMulti TestMultiFiresWatches", ""},
	{"3.10", "getAllChildrenNumber counts all below", "TestAnswers TestPermissions", ""},
	{"3.11", "getEphemerals: own ones, text of the prefix", "TestAnswers", ""},
	{"3.12", "sync", "TestOps TestAnswers TestPermissions embed/promisetest.TestGuarantee_LinearizableSync", "it is a real barrier: see doc.go"},
	{"3.13", "check is no op outside a multi; its checks in a multi", "TestGoldenUnknownOp TestPermissions TestMulti", ""},
	{"3.14", "ping", "TestGoldenConversation TestWhatKeepsASessionAlive TestZxidsOfAnswers", ""},
	{"3.15", "malformed multis", "TestMulti internal/wire.TestMultiOfForbiddenOperationsIsMalformed", ""},
	{"3.15", "what creates become in a multi", "TestMulti", ""},
	{"3.15.1", "each operation sees those before it", "TestMulti", ""},
	{"3.15.2", "all or nothing, one zxid", "TestMulti TestMultiFiresWatches embed/promisetest.TestGuarantee_Atomic", ""},
	{"3.15.3", "results of success", "TestMulti TestGoldenConversation internal/wire.TestMultiAnswersEveryStatAsCreate2", ""},
	{"3.15.4", "results of failure", "TestMulti TestGoldenConversation", ""},
	{"3.15.5", "the first code that is not 0", "", ofTheClient},
	{"3.15.6", "empty multi", "TestMulti", "it takes no zxid, like everything that changes nothing"},
	{"3.15.7", "SessionMoved ends the connection", "TestReattach TestNothingBehindARefusedWrite", ""},
	{"3.15.8", "which watches a multi fires", "TestMultiFiresWatches", ""},
	{"3.15.9", "ephemeral of a local session", "", noLocalSessions},
	{"3.16", "multiRead: each alone, no watches", "TestMultiRead TestPermissions TestReadsThatLeaveNoWatch", ""},
	{"3.17", "addWatch: only the mode is checked; adding twice is adding once", "TestOps TestAddAndRemoveWatches TestPermissions watch.TestClient_AnyPath watch.TestClient_ModesAreASet", ""},
	{"3.18", "checkWatches, removeWatches", "TestOps TestAddAndRemoveWatches watch.TestClient_RemoveByType watch.TestClient_RemoveAny", ""},
	{"3.19", "setWatches, setWatches2: 6.6", "TestSetWatches", ""},
	{"3.20", "reconfig: disabled by default", "TestOps TestReconfigConfig clienttest.TestReconfig", ""},
	{"3.20", "reconfig: the strings, and the order of its checks", "TestPlanReconfig FuzzPlanReconfig TestReconfig_Refusals clienttest.TestReconfig", otherReconfig},
	{"3.20", "reconfig: one at a time, for one version", "TestReconfig_TwoAtOnce clienttest.TestReconfig", "of two equal changes at once both succeed"},
	{"3.20", "reconfig: a quorum of the new config", "TestReconfig_Refusals TestReconfig_OneBecomesThree", "who does not answer does not count, and one voter gets two more at once"},
	{"3.20", "reconfig: what it changes, its answer and its event", "TestReconfig TestAdvertise clienttest.TestReconfig", otherReconfig + "; clienttest names each deviation"},
	{"3.21", "auth: zxid 0, cumulative, for the connection; failure ends the connection only", "TestAuth TestAuthFails TestAuthThatFailsKeepsTheSession TestReattach TestAuthOfUnknownOutcomeEndsTheConnection", "its answer keeps its place, and identities are bounded: see doc.go"},
	{"3.22", "sasl without a set-up", "TestAnswers", ""},
	{"3.22", "sasl: -115 and a null token, or -124 where it is required, then the end", "TestSASL TestSASL_Refuses TestSASL_Required TestDigest_Refuses clienttest.TestSASL_SameAnswers clienttest.TestSASL_Required", "no acting for others"},
	{"3.23", "whoAmI", "TestAuth TestX509 TestX509_DistinctSubjects TestReattach", ""},
	{"3.24", "closeSession", "TestCloseSession TestCloseFiresOwnWatches TestGoldenConversation", ""},

	{"5.1.1", "first frame; a client that has seen more is refused", "TestHandshakeMalformed TestHandshakeOfAClientAhead", ""},
	{"5.1.2", "protocol version and a new session's password are ignored", "TestHandshakeOpensASession TestGoldenConversation", ""},
	{"5.1.3", "the timeout is clamped", "TestHandshakeOpensASession TestReattach", ""},
	{"5.1.4", "0 is a new session, which is applied before the answer", "TestHandshakeOpensASession", "the id is the zxid of the transaction"},
	{"5.1.5", "requests behind the first frame", "TestHandshakeWithRequestsBehindIt", ""},
	{"5.1.6", "expired, or wrong password", "TestHandshakeOfAnExpiredSession TestReattachIsRefused TestReattach", ""},
	{"5.2.1", "ids", "TestHandshakeOpensASession", "an id is a zxid, never used again"},
	{"5.2.2", "passwords", "TestHandshakeOpensASession TestReattachIsRefused", "a password is random and kept, so it protects the session"},
	{"5.2.3", "0 is no session to reattach", "TestHandshakeOpensASession", ""},
	{"5.3.1", "to reattach here ends the former connection", "TestReattach TestReattachIsRefused", "only after the password is verified: a stranger cannot cut off a client"},
	{"5.3.2", "the timeout is agreed on anew", "TestReattach", "and it is kept"},
	{"5.3.3", "the former member's connection", "TestReattach engine.TestRemoteSessionMoves clienttest.TestMemberIsKilled", "it ends as soon as its member knows, reads included"},
	{"5.3.4", "watches and identities do not move", "TestReattach TestSetWatches", ""},
	{"5.4.1", "what keeps a session alive", "TestWhatKeepsASessionAlive engine.TestIdleRemoteSessionsCostBeatsOnly", ""},
	{"5.4.2", "when it expires", "TestSilentClient engine.TestRemoteSessionIsClosedForItsSilence", "silence is counted by the member that has the connection, in ticks: see engine/remote.go"},
	{"5.4.3", "expiry is a transaction", "TestSilentClient engine.TestRemoteSessionIsClosedForItsSilence engine.TestSilenceIsToldAsExpiry", ""},
	{"5.4.4", "a full timeout after a change of leader or a restart", "engine.TestRestartKeepsRemoteSessions engine.TestRemoteSessionsOnFailingMembers", "a change of leader does not concern a session; a restart of its member does"},
	{"5.4.5", "an expired session's connection ends", "TestSilentClient TestNothingBehindARefusedWrite", ""},
	{"5.4.6", "idle connections end", "TestSilentClient TestHandshakeMalformed", ""},
	{"5.5", "close is one transaction", "TestCloseIsOneTransaction TestCloseSession", "with several shards one transaction on each: see package engine"},
	{"5.6", "local sessions", "", noLocalSessions},
	{"5.7", "read-only mode", "TestReadOnly_CutAndBack TestReadOnly_Actions TestReadOnly_IsOffByDefault TestReadOnlyClient TestMemberCutOff clienttest.TestReadOnly", ofReadOnly},
	{"5.8", "limits of connections, back-pressure", "TestConnectionLimits TestPipelinedRequestsAreInOrder TestSlowReader", ""},
	{"5.9", "the Java client's times", "", ofTheClient},

	{"6.1.1", "watches belong to the connection, and end with it without events", "TestReattach watch.TestClient_EndTakesAllWatches", ""},
	{"6.1.2", "which requests leave which watches", "TestReadsArm TestAddAndRemoveWatches watch.TestClient_TriggerMatrix", ""},
	{"6.1.3", "adding twice is adding once; modes are independent", "watch.TestClient_ModesAreASet TestAddAndRemoveWatches", ""},
	{"6.2", "what fires which watches", "watch.TestClient_TriggerMatrix engine.TestRemoteWatches_CausesOfTheTree TestReadsArm", ""},
	{"6.2.1", "recursive watches have no child-changed events, persistent ones no events of children's data", "watch.TestClient_TriggerMatrix TestAddAndRemoveWatches", ""},
	{"6.2.2", "a child's data, a parent's data", "watch.TestClient_TriggerMatrix", ""},
	{"6.2.3", "the root as a parent", "watch.TestClient_RootIsTheParent", ""},
	{"6.2.4", "only exists leaves a watch of a missing znode", "TestReadsArm engine.TestRemoteWatches_WhichReadsArm", ""},
	{"6.3.1", "one event for each cause and table", "watch.TestClient_OneEventForACauseAndATable watch.FuzzClient", ""},
	{"6.3.2", "a delete has one event", "watch.TestClient_DeleteIsToldOnce TestReadsArm", ""},
	{"6.3.3", "the parent has an event of its own, which comes later", "watch.TestClient_TheParentsEventComesAfter TestReadsArm", ""},
	{"6.3.4", "which watcher in the client is told", "", ofTheClient},
	{"6.4.1", "events before the answers that show them, also of the client's own writes", "TestEventsAndAnswersAreInOrder TestGoldenWatches TestCloseFiresOwnWatches watch.TestClient_EventsBeforeWhatIsRead", ""},
	{"6.4.2", "in the order of zxids, and of a multi's operations", "TestMultiFiresWatches watch.TestClient_OrderIsThatOfTheChanges", ""},
	{"6.4.3", "no order among connections", "", "nothing is promised"},
	{"6.5", "frame of an event", "TestGoldenWatches TestMultiFiresWatches TestCloseIsOneTransaction", ""},
	{"6.6", "setWatches: the table", "TestSetWatches watch.TestClient_SetWatches engine.TestRemoteWatches_Reset TestGoldenWatches", "with several shards there are events of everything that may have changed"},
	{"6.6.1", "in order, before the answer, zxid -1, if the client may read", "watch.TestClient_SetWatches watch.TestClient_SetWatchesInOrder TestSetWatches TestSetWatches_TellsNothingHidden", "without Read there is no event of a change, which would give away its zxid: see doc.go; the event of a change during a long request comes in between, with its zxid"},
	{"6.6.2", "paths are not checked", "TestSetWatches watch.TestClient_AnyPath", ""},
	{"6.6.3", "what the lists contain", "", ofTheClient},
	{"6.6.4", "any xid", "TestGoldenWatches TestXidsAreSentBack", ""},
	{"6.6.5", "a znode that was created and deleted meanwhile is not noticed", "watch.TestClient_SetWatches", ""},
	{"6.7.1", "no event of a removal", "watch.TestClient_RemoveByType TestAddAndRemoveWatches", ""},
	{"6.7.2", "what the Java client sends", "", ofTheClient},
	{"6.8", "the ACL at that moment decides who gets an event; others' watches are used up", "TestWatchesAskForPermission watch.TestClient_ACLs watch.TestClient_ACLOfTheMoment engine.TestRemoteWatches_AreToldWhatTheyMayRead", ""},
	{"6.9", "the other manager of watches", "", "there is none"},
	{"6.10", "constants", "internal/wire.TestRecordsFollowTheCatalogue TestGoldenWatches", "states other than 3 belong to the client library"},

	{"10.1", "frames and their limit, which does not apply to answers", "TestFrameSize TestLongFrames TestMalformedRequests internal/wire.TestFramesHaveALimit", ""},
	{"10.2", "primitives", "internal/wire.TestTolerantDecoding internal/wire.TestRecordsFollowTheCatalogue internal/wire.TestGoldenFramesAreWrittenAndRead internal/wire.TestMalformedRecordsAreErrors", ""},
	{"10.3", "connect; old clients", "TestHandshakeOfOldClients internal/wire.TestOldClientsGetNoReadOnly TestGoldenConversation", ""},
	{"10.4", "headers: xids, zxids", "TestXidsAreSentBack TestZxidsOfAnswers TestAnswers TestAuth TestGoldenUnknownOp", "a write that fails uses no zxid: see doc.go"},
	{"10.5", "records", "internal/wire.TestRecordsFollowTheCatalogue internal/wire.FuzzRequest", ""},
	{"10.6", "words come first, and half a connection is enough", "TestWords TestHandshakeMalformed TestNoWordIsAFrame", ""},
	{"10.7", "malformed input", "TestHandshakeMalformed TestMalformedRequests TestGoldenUnknownOp FuzzConnection TestSoak", ""},

	{"11.1", "the list of words that are answered", "TestWordsOnTheList", ""},
	{"11.1", "a member that does not serve", "TestMemberCutOff", ""},
	{"11.1 ruok", "", "TestWords TestMemberCutOff", ""},
	{"11.1 srvr", "", "TestWords TestWordsOfAnEnsemble TestWordsOfObservers", ""},
	{"11.1 stat", "", "TestWords", ""},
	{"11.1 cons", "", "TestWords TestLastOps", ""},
	{"11.1 conf", "", "TestWords TestWordsOfAnEnsemble TestWordsOfObservers", "it has no keys about ZooKeeper's elections"},
	{"11.1 crst, srst", "", "TestWords TestWordsOfAnEnsemble", ""},
	{"11.1 dump", "", "TestWords", "as on a follower: see doc.go"},
	{"11.1 envi", "", "TestWords", "it has no keys about Java"},
	{"11.1 dirs", "", "TestWords TestDirSizes", "both sizes are that of the whole directory: see doc.go"},
	{"11.1 isro", "", "TestWords TestMemberCutOff", ""},
	{"11.1 wchs, wchp, wchc", "", "TestWords TestAddAndRemoveWatches", ""},
	{"11.1 mntr", "", "TestWords TestWordsOfAnEnsemble TestWordsOfObservers", ""},
	{"11.1 gtmk, stmk, hash", "", "TestWords TestWordsOnTheList", "the trace mask cannot be set, and there is no digest of the tree"},
	{"11.1.1", "what counts as watched", "TestAddAndRemoveWatches watch.TestClient_Counts", ""},
	{"11.1.2", "names of the last op", "TestLastOps", ""},
	{"11.1.3", "keys of mntr", "TestWords TestWordsOfAnEnsemble TestMonitor_Counts TestMonitor_NamesOfZooKeeper", "doc.go lists the missing keys"},
	{"11.2", "AdminServer", "embed.TestCommands_AreZooKeepers embed.TestCommands_WithoutAGateway", ofAdminServer},
}

// Every statement names existing tests, or a reason.
func TestStatements(t *testing.T) {
	tests := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for room, dir := range map[string]string{
		"": ".", "clienttest.": "clienttest", "embed.": "..", "embed/promisetest.": "../promisetest", "internal/wire.": "../../internal/wire",
		"engine.": "../../engine", "tree.": "../../tree", "watch.": "../../watch",
	} {
		found := false
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			found = true
			text, err := os.ReadFile(path)
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				tests[room+m[1]] = true
			}
			return err
		})
		if err != nil || !found {
			t.Fatalf("%s: found tests %v, error %v", dir, found, err)
		}
	}
	var ofWords strings.Builder
	for _, s := range statements {
		if strings.HasPrefix(s.number, "11.1 ") {
			ofWords.WriteString(s.number)
		}
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
	for word := range words {
		if !strings.Contains(ofWords.String(), word) {
			t.Errorf("no statement 11.1 names the word %s", word)
		}
	}
}
