package main

import (
	"log/slog"
	"net"
	"os"
	"time"
)

// notifyTime bounds how long serve waits for systemd to take a message.
const notifyTime = time.Second

// tell notifies systemd of a state. The member does its work even if systemd does not hear of it.
func tell(log *slog.Logger, state string) {
	if err := notify(state); err != nil {
		log.Warn("systemd was not notified", "cause", err)
	}
}

// notify tells systemd a state of this process, such as READY=1, if systemd asked for it: a unit
// with Type=notify has the socket in NOTIFY_SOCKET. Otherwise it does nothing. See sd_notify(3).
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTime)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
