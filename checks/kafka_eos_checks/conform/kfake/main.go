// A kfake cluster of one broker on a port of the loopback interface, until it is told to stop.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	cluster, err := kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	fmt.Println("ready", cluster.ListenAddrs()[0])
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
