# The modules of src/, one library a folder. TORCH: the module may use libtorch.
# DEPENDS is the whole list of modules that it may include; tools/check_includes.py reads these lines.
lockstep_module(base)
lockstep_module(config DEPENDS base)
lockstep_module(mesh DEPENDS base)
lockstep_module(schedule DEPENDS base)
lockstep_module(text DEPENDS base)
lockstep_module(model DEPENDS base)
lockstep_module(plan DEPENDS base mesh schedule model)
lockstep_module(data DEPENDS base config text)
lockstep_module(monitor DEPENDS base config)
lockstep_module(comm TORCH DEPENDS base mesh)
lockstep_module(launch DEPENDS base config)
if(TARGET launch_test)
  # The clients of its store are c10d's.
  target_link_libraries(launch_test PRIVATE lockstep_comm)
endif()
lockstep_module(ops TORCH DEPENDS base)
lockstep_module(nn TORCH DEPENDS base model ops)
lockstep_module(optim TORCH DEPENDS base config ops)
lockstep_module(checkpoint TORCH DEPENDS base config mesh model comm)
lockstep_module(parallel TORCH DEPENDS base config mesh schedule model comm ops nn optim checkpoint)
lockstep_module(train TORCH
  DEPENDS base config mesh text model plan data monitor comm ops nn optim checkpoint parallel)
lockstep_program(cli lockstep-core TORCH
  DEPENDS base config mesh schedule text model plan data monitor comm launch ops nn optim checkpoint parallel train)
lockstep_program(start lockstep DEPENDS base config launch)
if(TARGET lockstep)
  add_dependencies(lockstep lockstep-core)
endif()

# GCC 12 sees overlapping copies in std::string where there are none (GCC bug 105651).
foreach(name config launch cli)
  target_compile_options(lockstep_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endforeach()

if(TARGET lockstep)
  include(ProgramTests)
endif()
if(LOCKSTEP_CUDA)
  include(Cuda)
endif()
