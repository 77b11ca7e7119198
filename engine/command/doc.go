// Package command is the format of the log and of the durable image: the commands that replicas
// apply, the requests in a batch, and the records of znodes, sessions and members. It encodes and
// decodes; what a command does is the replica's to know.
//
// Everything is a MessagePack array, written in the shortest form. The golden files in testdata pin
// every byte: what is in the log of a running ensemble must be readable by the next build.
//
// The encoder and decoder are our own, because they are on the path of every write. With the
// msgpack library, which writes to an io.Writer, each request escaped to the heap and decoding took
// twice the time. The library is the reference that the tests compare with.
package command
