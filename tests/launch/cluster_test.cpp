// Tests of the placement from variables of SLURM and MPI.
#include "launch/plan/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/frontends/compat.h"
#include "launch/helpers.h"
#include "launch/system/network.h"

namespace lockstep::launch {
namespace cluster_test {

using ::testing::HasSubstr;

Environment slurm(int rank, int size, int local, int per_node, int node, int nodes) {
  return {
      {"SLURM_JOB_ID", "77"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_PROCID", std::to_string(rank)},
      {"SLURM_NTASKS", std::to_string(size)},
      {"SLURM_LOCALID", std::to_string(local)},
      {"SLURM_STEP_TASKS_PER_NODE", std::to_string(per_node) + "(x2)"},
      {"SLURM_NODEID", std::to_string(node)},
      {"SLURM_NNODES", std::to_string(nodes)},
      {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
}

TEST(Cluster, OneSlurmTaskANodeMeetsAtTheFirstNode) {
  const LaunchPlan plan = read_launch({"--nproc-per-node=4", "x.py"}, slurm(1, 2, 0, 1, 1, 2)).plan;
  EXPECT_EQ(plan.rendezvous.kind, RendezvousPoint::Kind::kStatic);
  EXPECT_EQ(plan.rendezvous.host, "gpu07");
  EXPECT_EQ(plan.rendezvous.node_rank, 1);
  EXPECT_EQ(plan.max_nodes, 2);
  EXPECT_EQ(plan.workers, 4);
  EXPECT_EQ(plan.rendezvous.port, find_cluster(slurm(0, 2, 0, 1, 0, 2))->port);
}

TEST(Cluster, OneSlurmTaskARankIsAWorkerWithItsRank) {
  const LaunchPlan plan = read_launch({"x.py"}, slurm(5, 8, 1, 4, 1, 2)).plan;
  ASSERT_TRUE(plan.identity.has_value());
  EXPECT_EQ(plan.identity->rank, 5);
  EXPECT_EQ(plan.identity->world_size, 8);
  EXPECT_EQ(plan.identity->local_rank, 1);
  EXPECT_EQ(plan.identity->local_world_size, 4);
  EXPECT_FALSE(plan.identity->agent_store);
}

TEST(Cluster, OptionsAndBatchScriptsAreLeftAlone) {
  EXPECT_EQ(
      read_launch(
          {"--nnodes=3", "--node-rank=2", "--master-addr=h", "x.py"}, slurm(1, 2, 0, 1, 1, 2))
          .plan.rendezvous.host,
      "h");
  Environment batch = slurm(0, 8, 0, 4, 0, 2);
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(find_cluster(batch).has_value());
}

TEST(Cluster, RecognisesMpi) {
  Environment open_mpi{
      {"OMPI_COMM_WORLD_RANK", "3"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(find_cluster(open_mpi)->node, 1);
  try {
    read_launch({"x.py"}, open_mpi);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("mpirun -x MASTER_ADDR=HOST"));
  }
  open_mpi["MASTER_ADDR"] = "h0";
  EXPECT_EQ(read_launch({"x.py"}, open_mpi).plan.identity->master_address, "h0");
  EXPECT_EQ(
      find_cluster({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}})->size, 2);
  EXPECT_THROW(find_cluster({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), Error);
}

TEST(Cluster, TakesNoNameForAPublicAddressUnlessItIsOne) {
  EXPECT_TRUE(is_public("8.8.8.8"));
  EXPECT_TRUE(is_public("2001:db8::1"));
  for (const char* address :
       {"127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.1.1",
        "::1",
        "fd00::1",
        "localhost",
        "no-such-host-here.invalid"}) {
    EXPECT_FALSE(is_public(address)) << address;
  }
}

TEST(Cluster, TasksOfOneMachineMeet) {
  std::vector<std::string> environment;
  const auto ran = testing::run(
      {"sh",
       "-c",
       "for r in 0 1; do SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=$r SLURM_LOCALID=$r "
       "SLURM_NTASKS=2 "
       "SLURM_STEP_TASKS_PER_NODE=2 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_JOB_NODELIST=localhost " +
           testing::part("x")[0] +
           " --part launch --no-python sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR "
           "$TORCHELASTIC_USE_AGENT_STORE' & "
           "done; wait"});
  EXPECT_THAT(ran.output, HasSubstr("0 of 2 at 127.0.0.1 False\n"));
  EXPECT_THAT(ran.output, HasSubstr("1 of 2 at 127.0.0.1 False\n"));
}

}  // namespace cluster_test
}  // namespace lockstep::launch
