//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// etcd is an ensemble of etcd with default settings, and an in-process client of its first member.
type etcd struct {
	cluster []string // name=url of each member
	servers []*embed.Etcd
	client  *clientv3.Client
}

func startEtcd(dir string) (ensemble, error) {
	peers, err := child.FreeAddrs(voters)
	if err != nil {
		return nil, err
	}
	e := &etcd{}
	for i, peer := range peers {
		e.cluster = append(e.cluster, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	for i, peer := range peers {
		s, err := e.start(dir, fmt.Sprintf("m%d", i), peer, "new", e.cluster)
		if err != nil {
			return nil, err
		}
		e.servers = append(e.servers, s)
	}
	for _, s := range e.servers {
		<-s.Server.ReadyNotify()
	}
	e.client = v3client.New(e.servers[0].Server)
	return e, nil
}

func (e *etcd) start(dir, name, peer, state string, cluster []string) (*embed.Etcd, error) {
	clients, err := child.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.ClusterState = name, filepath.Join(dir, name), "error", state
	c.ListenPeerUrls, c.AdvertisePeerUrls = urls(peer), urls(peer)
	c.ListenClientUrls, c.AdvertiseClientUrls = urls(clients[0]), urls(clients[0])
	c.InitialCluster = strings.Join(cluster, ",")
	return embed.StartEtcd(c)
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

func (e *etcd) put(ctx context.Context, parent, name string, data []byte) error {
	_, err := e.client.Put(ctx, parent+"/"+name, string(data))
	return err
}

// learn adds a learner and waits until it has applied what was committed when it was added. etcd
// itself says no sooner that a learner serves.
func (e *etcd) learn(dir string, round int) (time.Duration, error) {
	peer, err := child.FreeAddrs(1)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	name := fmt.Sprintf("learner%d", round)
	var began time.Time
	var added *clientv3.MemberAddResponse
	for asked := time.Now(); time.Since(asked) < patience; time.Sleep(100 * time.Millisecond) {
		began = time.Now()
		added, err = e.client.MemberAddAsLearner(ctx, []string{"http://" + peer[0]})
		if err == nil { // for five seconds after a start, it finds the cluster unhealthy
			break
		}
	}
	if err != nil {
		return 0, err
	}
	index := e.servers[0].Server.AppliedIndex()
	s, err := e.start(dir, name, peer[0], "existing", append(e.cluster[:voters:voters], name+"=http://"+peer[0]))
	if err != nil {
		return 0, err
	}
	for late := began.Add(patience); s.Server.AppliedIndex() < index; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			return 0, fmt.Errorf("the learner has applied %d of %d entries after %v", s.Server.AppliedIndex(), index, patience)
		}
	}
	took := time.Since(began)
	_, err = e.client.MemberRemove(ctx, added.Member.ID)
	s.Close()
	return took, err
}
